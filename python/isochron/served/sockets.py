"""Authenticated connections between all workers of a job, which the native link takes over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from isochron import door
from isochron._core import TcpLink
from isochron.errors import PeerLostError
from isochron.served import reach


class Sockets:
    """Collective: all workers make one, and call connect(). `gather` brings everybody's words, `rendezvous_host` is the
    host of rank 0 as the others know it. Whoever connects must know a key that only the job's workers have."""

    def __init__(
        self, rank: int, gather: Callable[[Any], list[Any]], rendezvous_host: str | None, timeout: float
    ) -> None:
        self._rank = rank
        self._timeout = timeout
        everybody = reach.listen(gather, rendezvous_host)
        self.key, self.places, self._hosts = everybody.key, everybody.places, everybody.hosts
        self._link = TcpLink(rank, self._hosts, timeout)
        self._expected = set(range(rank + 1, len(self._hosts)))
        self._changed = threading.Condition()
        self._door = door.Door(everybody.listener, self.key, self._admit)

    def _admit(self, guest: door.Guest) -> None:
        rank = guest.hello.get("rank")
        with self._changed:
            if type(rank) is not int or rank not in self._expected:
                raise ValueError(f"rank is {rank!r}; permitted: {sorted(self._expected)}")
            guest.answer({"rank": self._rank})
            self._link.connect(rank, guest.link.detach(), *guest.keys)
            self._expected.remove(rank)
            self._changed.notify_all()

    def connect(self) -> TcpLink:
        """Who has the higher rank knocks. Nobody can connect after that."""
        try:
            for rank in range(self._rank):
                visit = self._knock(rank)
                self._link.connect(rank, visit.link.detach(), *visit.keys)
            with self._changed:
                if not self._changed.wait_for(lambda: not self._expected, self._timeout):
                    missing = sorted(self._expected)
                    names = ", ".join(f"rank {rank} on {self._hosts[rank]}" for rank in missing)
                    message = f"{names} did not connect within {self._timeout:g} s"
                    raise PeerLostError(message, missing, [self._hosts[rank] for rank in missing])
        finally:
            self._door.close()
        return self._link

    def _knock(self, rank: int) -> door.Visit:
        address, port = self.places[rank]
        try:
            return door.knock(address, port, self.key, {"rank": self._rank}, self._timeout)
        except OSError as error:
            host = self._hosts[rank]
            where = f"{host} at {address} port {port}"
            message = f"cannot reach rank {rank} on {where} within {self._timeout:g} s ({error})"
            raise PeerLostError(message, [rank], [host]) from error
