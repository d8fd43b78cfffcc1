"""A store of torch.distributed that takes words from everybody, used so that only those of the job count.

torch's store asks nobody who he is. So our entries stand under names that one cannot guess without the job's key, and
count only with an HMAC-SHA256 of name and value: what anybody else writes there is as if it were not there.

torch's store also waits for an answer for ever where whoever keeps it is stopped or out of reach. So a thread asks it,
and we wait for that thread no longer than the time-out.
"""

from __future__ import annotations

import hmac
import queue
import threading
import time
import weakref
from typing import Any

from isochron.errors import Error, PeerLostError

POLL_SECONDS = 0.02
CLOSING_SECONDS = 1.0  # for the thread, which may wait for a store that is gone
_SEAL = 32  # bytes


class SealedStore:
    """`store` is a torch.distributed.Store; as thread-safe as that. Every call may raise what the store raises when its
    host is gone, and PeerLostError where it does not answer within `timeout` seconds, or did not before."""

    def __init__(self, store: Any, key: bytes, timeout: float) -> None:
        self._key = key
        self._timeout = timeout
        self._answers = True
        self._questions: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_ask, args=(store, self._questions), name="isochron-store", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, self._questions.put, None)

    def close(self) -> None:
        """Nobody asks any more."""
        self._end()
        self._thread.join(CLOSING_SECONDS)

    def set(self, name: str, value: str) -> None:
        self._call("set", self._name(name), self._sealed(name, value))

    def get(self, name: str) -> str | None:
        """None: nobody of the job has written it."""
        key = self._name(name)
        return self._opened(name, self._call("get", key)) if self._call("check", [key]) else None

    def wait(self, name: str, timeout: float) -> str:
        deadline = time.monotonic() + timeout
        while (value := self.get(name)) is None:
            if time.monotonic() > deadline:
                raise Error(f"nobody of the job has written {name} within {timeout:g} s")
            time.sleep(POLL_SECONDS)
        return value

    def agree(self, name: str, value: str) -> str:
        """The value of whoever was the first to say one: the same for all."""
        agreed = self._opened(name, self._call("compare_set", self._name(name), "", self._sealed(name, value)))
        if agreed is None:
            raise Error(f"somebody who is not of this job has written {name} into the store")
        return agreed

    def _call(self, method: str, *arguments: Any) -> Any:
        if not self._end.alive:
            raise Error("the job is closed")
        if self._answers:
            answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
            self._questions.put((method, arguments, answer))
            try:
                value, error = answer.get(timeout=self._timeout)
            except queue.Empty:
                self._answers = False
            else:
                if error is not None:
                    raise error
                return value
        raise PeerLostError(
            f"the job's store did not answer within {self._timeout:g} s; whoever keeps it, the launcher or the first "
            "worker, is stopped or out of reach"
        )

    def _name(self, name: str) -> str:
        return f"isochron/{self._digest(b'name', name.encode()).hex()}"

    def _sealed(self, name: str, value: str) -> bytes:
        data = value.encode()
        return self._digest(b"value", name.encode() + b"\0" + data) + data

    def _opened(self, name: str, said: bytes) -> str | None:
        data = bytes(said[_SEAL:])
        seal = self._digest(b"value", name.encode() + b"\0" + data)
        return data.decode() if hmac.compare_digest(bytes(said[:_SEAL]), seal) else None

    def _digest(self, what: bytes, data: bytes) -> bytes:
        return hmac.digest(self._key, what + b"\0" + data, "sha256")


def _ask(store: Any, questions: queue.SimpleQueue[Any]) -> None:
    """A thread, until nobody can ask any more."""
    while (question := questions.get()) is not None:
        method, arguments, answer = question
        try:
            answer.put((getattr(store, method)(*arguments), None))
        except Exception as error:
            answer.put((None, error))
