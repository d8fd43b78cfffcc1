"""Which worker this process is, and where the others are: what a launcher says in environment variables.

TF_CONFIG, as TensorFlow defines it, comes first, then what isochron.place understands. That tells no addresses, so the
workers meet at the first one, at the port after MASTER_PORT (a launcher may hold the port itself), and exchange theirs.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Mapping

from isochron.place import Place, find_place


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers' addresses, host:port, in the order of their task indices; none for a job of one process."""

    index: int = 0
    addresses: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return max(1, len(self.addresses))

    @property
    def meeting_place(self) -> str | None:
        """The first one's host."""
        return self.addresses[0].rpartition(":")[0].strip("[]") if self.addresses else None

    def tf_config(self) -> str:
        return json.dumps({"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": self.index}})


def find_cluster(environ: Mapping[str, str], timeout: float) -> Cluster:
    """Waits, where the workers have to meet, for at most `timeout` seconds for the last of them."""
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
    return _meet(dataclasses.replace(place, port=place.port + 1), timeout)


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


def _meet(meeting: Place, timeout: float) -> Cluster:
    deadline = time.monotonic() + timeout
    with socket.socket() as held:  # nobody else gets this port before TensorFlow listens on it
        held.bind(("", 0))
        port = held.getsockname()[1]
        addresses = _host_meeting(meeting, port, deadline) if meeting.rank == 0 else _join(meeting, port, deadline)
    return Cluster(meeting.rank, tuple(addresses))


def _host_meeting(meeting: Place, port: int, deadline: float) -> list[str]:
    addresses = {0: f"{meeting.address}:{port}"}
    guests: list[socket.socket] = []
    try:
        with socket.create_server(("", meeting.port)) as server:
            while len(addresses) < meeting.size:
                server.settimeout(max(0.01, deadline - time.monotonic()))
                guest, _ = server.accept()
                guests.append(guest)
                guest.settimeout(max(0.01, deadline - time.monotonic()))
                said = json.loads(guest.makefile().readline())
                addresses[said["rank"]] = said["address"]
        found = [addresses[rank] for rank in range(meeting.size)]
        for guest in guests:
            guest.sendall((json.dumps(found) + "\n").encode())
        return found
    except TimeoutError:
        missing = [rank for rank in range(meeting.size) if rank not in addresses]
        raise TimeoutError(f"ranks {missing} did not come to {meeting.address}:{meeting.port} in time") from None
    except OSError as error:
        raise OSError(f"port {meeting.port}, where the workers meet: {error}; set MASTER_PORT to another") from error
    finally:
        for guest in guests:
            guest.close()


def _join(meeting: Place, port: int, deadline: float) -> list[str]:
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((meeting.address, meeting.port), timeout=max(0.01, left)) as host:
                address = f"{host.getsockname()[0]}:{port}"
                host.sendall((json.dumps({"rank": meeting.rank, "address": address}) + "\n").encode())
                line = host.makefile().readline()
                if line:
                    return json.loads(line)
        except OSError:
            pass
        if left <= 0:
            raise TimeoutError(f"rank 0 was not met at {meeting.address}:{meeting.port} in time")
        time.sleep(0.05)  # it is not listening yet
