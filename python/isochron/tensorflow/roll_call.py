"""Who is still there? TensorFlow's collectives do not say which worker they waited for in vain, so each worker answers
that question on a port of its own, behind a door (isochron.door), from a thread that costs nothing until one asks."""

from __future__ import annotations

import concurrent.futures
import socket
from collections.abc import Sequence
from typing import Any

from isochron import door

Addresses = dict[int, tuple[str, int]]  # of the others, by rank
DONE = 1 << 60  # the step of who has done with all of them


class RollCall:
    """Answers with the step this process is at, and keeps what others say is wrong."""

    def __init__(self, listener: socket.socket, key: bytes, size: int) -> None:
        self._size = size
        self._heard: tuple[str, list[int]] | None = None
        self.at = 0
        self._door = door.Door(listener, key, self._answer)

    def note(self, step: int) -> None:
        self.at = step

    def heard(self) -> tuple[str, list[int]] | None:
        """The first news from others: a message, and the ranks that it is about."""
        return self._heard

    def close(self) -> None:
        self._door.close()

    def _answer(self, guest: door.Guest) -> None:
        message, ranks = guest.hello.get("message"), guest.hello.get("ranks")
        if message is not None:
            known = range(self._size)
            if not isinstance(message, str) or not isinstance(ranks, list) or not all(one in known for one in ranks):
                raise ValueError("news that cannot be read")
            self._heard = self._heard or (message, ranks)
        guest.answer({"step": self.at})  # who tells may end after this: the news has arrived
        guest.close()


def call(addresses: Addresses, key: bytes, timeout: float) -> dict[int, int | None]:
    """The step every worker is at; None for those that do not answer it within `timeout` seconds."""
    return _ask_all(addresses, key, {}, timeout)


def tell(addresses: Addresses, key: bytes, message: str, ranks: Sequence[int], timeout: float) -> None:
    """Why this job cannot go on, and because of whom."""
    _ask_all(addresses, key, {"message": message[: door.MOST_HELLO // 16], "ranks": list(ranks)}, timeout)


def _ask_all(addresses: Addresses, key: bytes, hello: dict[str, Any], timeout: float) -> dict[int, int | None]:
    if not addresses:
        return {}
    with concurrent.futures.ThreadPoolExecutor(len(addresses)) as pool:
        answers = pool.map(lambda place: _ask(place[0], place[1], key, hello, timeout), addresses.values())
        return dict(zip(addresses, answers, strict=True))


def _ask(address: str, port: int, key: bytes, hello: dict[str, Any], timeout: float) -> int | None:
    try:
        visit = door.knock(address, port, key, hello, timeout)
    except OSError:
        return None
    visit.link.close()
    step = visit.answer.get("step")
    return step if type(step) is int else None
