"""How long a worker may be silent before TensorFlow's coordination service takes it for lost and ends everybody's work.

Ten seconds by default, which a worker on a machine that is overloaded, or swaps, may well be. The strategy does not let
one choose, but leaves a service alone that was configured before it.
"""

from __future__ import annotations

import logging

log = logging.getLogger("isochron")
_LEAST, _MOST = 10.0, 60.0  # seconds


def seconds(timeout: float) -> float:
    """A quarter of the job's time-out, so that a worker that stands still is known long before it."""
    return min(max(timeout / 4.0, _LEAST), _MOST)


def allow(workers: int, timeout: float) -> None:
    """Before the strategy is made, on all workers."""
    try:
        from tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2 import CoordinatedJob  # type: ignore[import]
        from tensorflow.python.eager import context  # type: ignore[import]

        if context.context().coordination_service is None:
            context.context().configure_coordination_service(
                service_type="standalone",
                service_leader="/job:worker/replica:0/task:0",
                heartbeat_timeout_in_ms=round(1000 * seconds(timeout)),
                coordinated_jobs=[CoordinatedJob(name="worker", num_tasks=workers)],
            )
    except (ImportError, AttributeError, TypeError) as error:  # neither is a public interface
        log.warning("a worker that is silent for ten seconds counts as lost (%s)", error)
