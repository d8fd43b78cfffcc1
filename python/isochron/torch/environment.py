"""The process group of the job that a launcher started (isochron.place says what launchers tell)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from isochron import job_key
from isochron.errors import PeerLostError
from isochron.place import Place, find_place
from isochron.torch.sealed import SealedStore

__all__ = ["Place", "default_backend", "find_place", "join_group"]


def default_backend(device: torch.device) -> str:
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


@contextlib.contextmanager
def naming_who_is_missing(store: dist.Store, rank: int, size: int, timeout: float) -> Iterator[None]:
    """Where workers connect for the first time: turns torch's error into one that names who did not come."""
    came = SealedStore(store, job_key.mixed("who came"), timeout)
    came.set(str(rank), "here")
    try:
        yield
    except RuntimeError as error:
        missing: list[int] = []
        with contextlib.suppress(RuntimeError):  # it may have ended with the worker that kept it
            missing = [other for other in range(size) if came.get(str(other)) is None]
        message = f"rank {', '.join(map(str, missing))} did not come" if missing else "a worker was lost"
        reason = str(error).splitlines()[0]
        raise PeerLostError(f"making the job of {size} workers: {message} ({reason})", missing) from error
    finally:
        came.close()


def join_group(place: Place, backend: str, timeout: timedelta) -> None:
    """Makes the default process group. Raises ValueError if nothing says where the rendezvous is."""
    if not place.address or not place.port:
        raise ValueError(
            f"MASTER_ADDR is '{place.address}' and MASTER_PORT is {place.port}; permitted: the host of rank 0 and a "
            f"free port there, which {place.launcher} does not tell"
        )
    if place.launcher == "torchrun":
        # Its agent may hold the store, which env:// knows about, and over a restart: then the dead have left addresses
        # there, to which gloo would try to connect.
        store, rank, size = next(iter(dist.rendezvous("env://", place.rank, place.size, timeout=timeout)))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        fresh = dist.PrefixStore(f"isochron/attempt/{attempt}/{size}", store)
        with naming_who_is_missing(fresh, rank, size, timeout.total_seconds()):
            dist.init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=timeout)
        return
    dist.init_process_group(
        backend,
        init_method=f"tcp://{place.address}:{place.port}",
        rank=place.rank,
        world_size=place.size,
        timeout=timeout,
    )
