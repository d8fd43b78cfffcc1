"""How workers reach each other: over TCP, unless a framework has a way of its own."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from isochron.errors import Error
from isochron.served import reach, wire
from isochron.served.wire import Seat

log = logging.getLogger("isochron")


class Link(Protocol):
    """Of two workers, one of which asks. Every failure is a PeerError. Not thread-safe."""

    seat: Seat  # of the other one

    def send(self, words: dict[str, Any], bodies: list[np.ndarray] | None = None) -> None:
        """`bodies` may be overwritten as soon as it returns."""

    def receive(self, patient: bool = False) -> dict[str, Any]:
        """`patient`: for as long as it takes until something comes."""

    def receive_into(self, bodies: list[np.ndarray]) -> None:
        """What was sent after the words."""

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
    others know it. Whoever connects must know a token that only the job's workers have."""

    def __init__(
        self, rank: int, gather: Callable[[Any], list[Any]], meeting_place: str | None, timeout: float
    ) -> None:
        self._rank = rank
        self._timeout = timeout
        self._listener = wire.listen(reach.own_address(gather(reach.machine()), meeting_place))
        address, port = self._listener.getsockname()[:2]
        words = {"host": socket.gethostname(), "address": address, "port": port, "token": secrets.token_hex(16)}
        everybody = gather(words)
        self._token = everybody[0].pop("token")
        self.seats = [Seat(rank, say["host"], say["address"], say["port"]) for rank, say in enumerate(everybody)]

    def serve(self, answer: Callable[[Link], None]) -> None:
        threading.Thread(target=self._accept, args=(answer,), name="isochron-accept", daemon=True).start()

    def _accept(self, answer: Callable[[Link], None]) -> None:
        """Until everybody is here: nobody can connect after that."""
        accepted = 1  # this worker itself
        with self._listener, suppress(OSError):
            while accepted < len(self.seats):
                link, _ = self._listener.accept()
                try:
                    connection = wire.accept(link, self.seats, self._token, self._timeout)
                except Error as error:
                    log.warning("%s", error)
                    continue
                accepted += 1
                name = f"isochron-serve-{connection.seat.rank}"
                threading.Thread(target=answer, args=(connection,), name=name, daemon=True).start()

    def connect(self, rank: int) -> Link:
        return wire.connect(self.seats[rank], self._rank, self._token, self._timeout)

    def close(self, orderly: bool) -> None:
        self._listener.close()
