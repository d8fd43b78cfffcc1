"""Names and values that the launchers of a job's hosts share where no torch is installed, whose store they would use.

The launcher of the first host keeps them; the others ask over connections that begin with the handshake of
isochron.door, so that only who knows the job's key reads or writes them. Both classes have the set() and get() of
isochron.torch.sealed.SealedStore, and likewise raise OSError when the first host is gone.
"""

from __future__ import annotations

import reprlib
import socket
import threading
import time
from typing import Any

from isochron import door

ANSWER_SECONDS = 10.0
_RETRY_SECONDS = 0.05


class Board:
    """Thread-safe. Whoever knocks sends `name` to read an entry, and `value` with it to write it."""

    def __init__(self, listener: socket.socket, key: bytes) -> None:
        self._entries: dict[str, str] = {}
        self._lock = threading.Lock()
        door.Door(listener, key, self._answer)

    def set(self, name: str, value: str) -> None:
        with self._lock:
            self._entries[name] = value

    def get(self, name: str) -> str | None:
        """None: nobody has written it."""
        with self._lock:
            return self._entries.get(name)

    def _answer(self, guest: door.Guest) -> None:
        name, value = guest.hello.get("name"), guest.hello.get("value")
        if not isinstance(name, str) or not isinstance(value, str | None):
            raise ValueError(f"the entry {name!r}; permitted: a name and a value in letters")
        if value is not None:
            self.set(name, value)
        guest.answer({"value": self.get(name)})
        guest.close()


class RemoteBoard:
    """That of another host. Its launcher may start later than this one, by `patience` seconds at most."""

    def __init__(self, host: str, port: int, key: bytes, patience: float) -> None:
        self._place, self._key = (host, port), key
        deadline = time.monotonic() + patience
        while True:
            try:
                self.get("")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def set(self, name: str, value: str) -> None:
        self._ask({"name": name, "value": value})

    def get(self, name: str) -> str | None:
        return self._ask({"name": name})

    def _ask(self, hello: dict[str, Any]) -> str | None:
        visit = door.knock(*self._place, self._key, hello, ANSWER_SECONDS)
        visit.link.close()
        value = visit.answer.get("value")
        if not isinstance(value, str | None):
            raise OSError(f"what answers there for the first host says {reprlib.repr(value)}; permitted: letters")
        return value
