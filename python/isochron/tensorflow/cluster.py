"""Which worker this process is, and where the others are: what a launcher says in environment variables.

TF_CONFIG, as TensorFlow defines it, comes first, then what isochron.place understands. That tells no addresses, so
workers exchange theirs at a rendezvous: at the first, at the port after MASTER_PORT, which a launcher may hold. That
port has a door (isochron.door). Its key is in the environment; on one host a file for this user alone will do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import reprlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from isochron import door, job_key
from isochron.errors import PeerError, TimeoutError
from isochron.place import Place, find_place
from isochron.served import reach

_RETRY_SECONDS = 0.05
_ANSWER_SECONDS = 5.0  # beyond the time-out of the first worker, which says who is missing
_REMOTE = ["one host", "another"]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers' addresses, host:port, in the order of their task indices; none for a job of one process."""

    index: int = 0
    addresses: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return max(1, len(self.addresses))

    @property
    def rendezvous_host(self) -> str | None:
        """The first one's host."""
        return self.addresses[0].rpartition(":")[0].strip("[]") if self.addresses else None

    def tf_config(self) -> str:
        return json.dumps({"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": self.index}})


def find_cluster(environ: Mapping[str, str], timeout: float) -> Cluster:
    """Waits, where a rendezvous is needed, for at most `timeout` seconds for the last worker."""
    if environ.get("TF_CONFIG"):
        return _from_tf_config(environ["TF_CONFIG"])
    place = find_place(environ)
    if place is None or place.size == 1:
        return Cluster()
    if not place.address or not place.port:
        raise ValueError(
            f"MASTER_ADDR is '{place.address}' and MASTER_PORT is {place.port}; permitted: the host of rank 0 and a "
            f"free port there, which {place.launcher} does not tell"
        )
    return _rendezvous(dataclasses.replace(place, port=place.port + 1), job_key.find(environ), timeout)


def _from_tf_config(text: str) -> Cluster:
    try:
        config = json.loads(text)
        workers = tuple(config.get("cluster", {}).get("worker", ()))
        task = config.get("task", {"type": "worker", "index": 0})
        kind, index = task["type"], int(task["index"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"TF_CONFIG is {text!r}: {error}; permitted: a cluster of workers and a task") from None
    others = sorted(set(config.get("cluster", {})) - {"worker"})
    if kind != "worker" or others:
        raise ValueError(
            f"TF_CONFIG names the task {kind!r} and the jobs {['worker', *others]}; permitted: 'worker' alone"
        )
    if not workers:
        return Cluster()
    if not 0 <= index < len(workers):
        raise ValueError(f"TF_CONFIG: the task's index is {index}; permitted: 0 to {len(workers) - 1}")
    return Cluster(index, workers) if len(workers) > 1 else Cluster()


def _rendezvous(place: Place, key: bytes | None, timeout: float) -> Cluster:
    deadline = time.monotonic() + timeout
    one_host = place.one_host or reach.is_loopback(place.address)
    # Open MPI tells no address: one that is given on one host leads into the namespaces of an emulated cluster.
    if one_host and (place.launcher != "open mpi" or reach.is_loopback(place.address)):
        place = dataclasses.replace(place, address=reach.LOOPBACK)
    if key is None and not one_host:
        raise ValueError(
            f"{job_key.VARIABLE} is not set, and the rendezvous is at {place.address}; permitted for workers of "
            f"several hosts: the same secret of {job_key.LEAST} letters or more on all of them"
        )
    with socket.socket() as held:  # nobody else gets this port before TensorFlow listens on it
        held.bind(("", 0))
        port = held.getsockname()[1]
        host_key = job_key.HostKey(f"rendezvous-{place.port}")
        if place.rank == 0:
            addresses = _host_rendezvous(place, port, key, host_key, deadline)
        else:
            addresses = _join(place, port, lambda: key or host_key.find(), deadline, timeout + _ANSWER_SECONDS)
    return Cluster(place.rank, tuple(addresses))


class _Guests:
    """Those who have come, by rank."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._guests: dict[int, door.Guest] = {}
        self.addresses: dict[int, str] = {}

    def admit(self, guest: door.Guest) -> None:
        rank, address = guest.hello.get("rank"), guest.hello.get("address")
        if type(rank) is not int or not 0 < rank < self._size or not isinstance(address, str):
            raise ValueError(f"rank is {rank!r}; permitted: 1 to {self._size - 1}, with an address")
        with self._changed:
            if rank in self._guests:
                self._guests[rank].close()  # who comes again has lost its connection
            self._guests[rank], self.addresses[rank] = guest, address
            self._changed.notify()

    def await_all(self, deadline: float) -> bool:
        left = max(deadline - time.monotonic(), 0.0)
        with self._changed:
            return self._changed.wait_for(lambda: len(self._guests) == self._size - 1, left)

    def answer(self, message: dict[str, Any]) -> None:
        """Who was lost meanwhile is missed by all when they register with TensorFlow."""
        for guest in self._guests.values():
            with contextlib.suppress(OSError):
                guest.answer(message)

    def close(self) -> None:
        for guest in self._guests.values():
            guest.close()


def _host_rendezvous(
    place: Place, port: int, key: bytes | None, host_key: job_key.HostKey, deadline: float
) -> list[str]:
    try:
        local = place.address == reach.LOOPBACK
        interface = reach.LOOPBACK if local else reach.own_address(_REMOTE, place.address)
        listener = door.listen(interface, place.port)
    except OSError as error:
        raise OSError(f"port {place.port} of the rendezvous: {error}; set MASTER_PORT to another") from error
    guests = _Guests(place.size)
    entrance = door.Door(listener, key or host_key.make(), guests.admit)
    try:
        if not guests.await_all(deadline):
            missing = [rank for rank in range(1, place.size) if rank not in guests.addresses]
            guests.answer({"missing": missing})
            raise _not_there(place, missing)
        entrance.close()
        addresses = {0: f"{place.address}:{port}", **guests.addresses}
        found = [addresses[rank] for rank in range(place.size)]
        guests.answer({"addresses": found})
        return found
    finally:
        entrance.close()
        guests.close()
        if key is None:
            host_key.remove()


def _join(
    place: Place, port: int, find_key: Callable[[], bytes | None], deadline: float, patience: float
) -> list[str]:
    """Rank 0 has to be met until the deadline, and then has `patience` seconds to say who is there, or missing."""
    while True:
        left = deadline - time.monotonic()
        key = find_key()
        try:
            if key is not None:
                link = socket.create_connection((place.address, place.port), timeout=max(0.01, left))
                hello = {"rank": place.rank, "address": f"{link.getsockname()[0]}:{port}"}
                answer = door.introduce(link, key, hello, time.monotonic() + patience).answer
                link.close()
                break
        except OSError:
            pass
        if left <= 0:
            raise TimeoutError(f"rank 0 did not answer at {place.address}:{place.port} in time", [0], [place.address])
        time.sleep(_RETRY_SECONDS)  # it is not listening yet, or has made another key meanwhile
    missing: Any = answer.get("missing")
    addresses: Any = answer.get("addresses")
    if _is_list_of(int, missing) and missing and all(0 < rank < place.size for rank in missing):
        raise _not_there(place, missing)
    if _is_list_of(str, addresses) and len(addresses) == place.size:
        return addresses
    raise PeerError(
        f"rank 0 at {place.address}:{place.port} answered {reprlib.repr(answer)}; permitted: the ranks that are "
        f"missing, or the addresses of all {place.size} workers (is it of the same version?)",
        [0],
        [place.address],
    )


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is kind for one in value)


def _not_there(place: Place, missing: list[int]) -> TimeoutError:
    return TimeoutError(f"ranks {missing} did not come to {place.address}:{place.port} in time", missing)
