"""How workers reach each other: over TCP, unless a framework has a way of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from isochron import door, job_key
from isochron.served import reach, wire
from isochron.served.wire import Connection, Kind, Seat


class Link(Protocol):
    """Connects two workers, one of which asks. Every failure is a PeerError. Not thread-safe."""

    seat: Seat  # of the other one

    def send(self, kind: Kind, message: bytes = b"", bodies: list[np.ndarray] | None = None) -> None:
        """`bodies` may be overwritten as soon as it returns."""

    def receive(self, patient: bool = False) -> tuple[Kind, bytes]:
        """`patient`: for as long as it takes until something comes."""

    def receive_into(self, bodies: list[np.ndarray]) -> None:
        """What was sent after the message."""

    def close(self) -> None: ...


class Network(Protocol):
    seats: list[Seat]  # by rank

    def serve(self, answer: Callable[[Link], None]) -> None:
        """Calls `answer` in a thread of its own for every other worker, with a link from which its requests come."""

    def connect(self, rank: int) -> Link:
        """For requests to that worker, which serves."""

    def close(self, orderly: bool) -> None:
        """Nobody can connect any more. `orderly`: everybody says goodbye, and may be waited for."""


class Sockets:
    """Collective: all workers make one. `gather` brings everybody's words, `meeting_place` is the host of rank 0 as the
    others know it. Whoever connects must know a key that only the job's workers have."""

    def __init__(
        self, rank: int, gather: Callable[[Any], list[Any]], meeting_place: str | None, timeout: float
    ) -> None:
        self._rank = rank
        self._timeout = timeout
        self._listener = door.listen(reach.own_address(gather(reach.machine()), meeting_place))
        address, port = self._listener.getsockname()[:2]
        words = {"host": socket.gethostname(), "address": address, "port": port, "secret": job_key.make()}
        everybody = gather(words)
        self._key = job_key.mixed(everybody[0].pop("secret"))
        self.seats = [Seat(rank, say["host"], say["address"], say["port"]) for rank, say in enumerate(everybody)]
        self._door: door.Door | None = None
        self._expected = set(range(len(self.seats))) - {rank}
        self._lock = threading.Lock()

    def serve(self, answer: Callable[[Link], None]) -> None:
        """Until everybody is here: nobody can connect after that."""
        if not self._expected:
            self.close(orderly=True)
            return

        def admit(guest: door.Guest) -> None:
            rank = guest.hello.get("rank")
            with self._lock:
                if type(rank) is not int or rank not in self._expected:
                    raise ValueError(f"rank is {rank!r}; permitted: {sorted(self._expected)}")
                guest.answer({"rank": self._rank})
                self._expected.remove(rank)
            if not self._expected:
                self.close(orderly=True)
            threading.current_thread().name = f"isochron-serve-{rank}"
            answer(Connection(guest.link, self.seats[rank], self._timeout))

        self._door = door.Door(self._listener, self._key, admit)

    def connect(self, rank: int) -> Link:
        return wire.connect(self.seats[rank], self._rank, self._key, self._timeout)

    def close(self, orderly: bool) -> None:
        if self._door is not None:
            self._door.close()
        self._listener.close()
