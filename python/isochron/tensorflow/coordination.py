"""How long TensorFlow's coordination service, which the first worker keeps, waits for the others.

Until all have registered: an hour by default, and then for ever, as the first worker's strategy waits for who has not
come without any end. Here it is the job's time-out, at a barrier, which says who is missing. Afterwards, until a worker
that is silent counts as lost and everybody's work ends: ten seconds by default, which a worker on a machine that is
overloaded, or swaps, may well be. The strategy lets one choose neither, but leaves a service alone that was configured
before it.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

import tensorflow as tf

from isochron.errors import PeerLostError
from isochron.tensorflow.cluster import Cluster

log = logging.getLogger("isochron")
_LEAST, _MOST = 10.0, 60.0  # seconds
_MISSING = "timed out task names:"


def heartbeat_seconds(timeout: float) -> float:
    """A quarter of the job's time-out, so that a worker that stands still is known long before it."""
    return min(max(timeout / 4.0, _LEAST), _MOST)


def configure(workers: int, timeout: float) -> None:
    """Before the strategy is made, on all workers."""
    try:
        from tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2 import CoordinatedJob  # type: ignore[import]
        from tensorflow.python.eager import context  # type: ignore[import]

        if context.context().coordination_service is None:
            context.context().configure_coordination_service(
                service_type="standalone",
                service_leader="/job:worker/replica:0/task:0",
                cluster_register_timeout_in_ms=round(1000 * timeout),
                heartbeat_timeout_in_ms=round(1000 * heartbeat_seconds(timeout)),
                coordinated_jobs=[CoordinatedJob(name="worker", num_tasks=workers)],
            )
            context.context().coordination_service.cluster_register_with_barrier = True
    except (ImportError, AttributeError, TypeError) as error:  # none of this is a public interface
        log.warning("a worker counts as lost after ten seconds of silence, one that does not come never (%s)", error)


@contextlib.contextmanager
def naming_who_is_missing(cluster: Cluster) -> Iterator[None]:
    """While the strategy is made: turns TensorFlow's error into one that names who did not register in time."""
    try:
        yield
    except (tf.errors.DeadlineExceededError, tf.errors.UnavailableError) as error:
        _, found, names = str(error).partition(_MISSING)
        missing = sorted(set(map(int, re.findall(r"/task:(\d+)", names.partition("\n\n")[0])))) if found else [0]
        hosts = [cluster.addresses[rank].rpartition(":")[0] for rank in missing]
        who = ", ".join(f"task {rank} on {host}" for rank, host in zip(missing, hosts, strict=True))
        raise PeerLostError(f"making the job of {cluster.size} workers: {who} did not come", missing, hosts) from error
