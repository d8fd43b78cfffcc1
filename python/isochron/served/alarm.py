"""The first failure that this process knows of. It ends all waiting, here and, by the message it sends, elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from isochron._core import Failure
from isochron.errors import Error, NumbersError, PeerError, PeerLostError, TimeoutError

_KINDS: dict[str, type[Error]] = {
    kind.__name__: kind for kind in (Error, NumbersError, PeerError, PeerLostError, TimeoutError)
}
Found = TypeVar("Found")


def failure_of(error: BaseException) -> Failure:
    """An error as it travels."""
    failure = Failure()
    failure.kind = type(error).__name__ if type(error).__name__ in _KINDS else "Error"
    failure.text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    failure.ranks, failure.hosts = list(getattr(error, "ranks", ())), list(getattr(error, "hosts", ()))
    return failure


def error_of(failure: Failure) -> Error:
    kind = _KINDS.get(failure.kind, Error)
    return kind(failure.text, failure.ranks, failure.hosts) if issubclass(kind, PeerError) else kind(failure.text)


class Alarm:
    """Thread-safe. ring() must not be called by whoever holds one of the conditions."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout  # seconds
        self.failure: Failure | None = None
        self._lock = threading.Lock()
        self._rung = threading.Event()
        self._conditions: list[threading.Condition] = []

    def condition(self) -> threading.Condition:
        """One that ring() wakes."""
        self._conditions.append(threading.Condition())
        return self._conditions[-1]

    def ring(self, error: BaseException) -> None:
        """The first one counts: what comes after it follows from it."""
        with self._lock:
            if self.failure is None:
                self.failure = failure_of(error)
        self._rung.set()
        for condition in self._conditions:
            with condition:
                condition.notify_all()

    def listen(self, seconds: float) -> None:
        """For a moment, whether somebody else has rung."""
        self._rung.wait(seconds)

    def check(self) -> None:
        if self.failure is not None:
            raise error_of(self.failure)

    def wait(
        self, condition: threading.Condition, look: Callable[[], Found | None], alive: Callable[[], None]
    ) -> Found:
        """What look() finds, under the condition; `alive` is called now and then, so that who waits for us knows why.
        Raises the failure if one comes first."""
        found: list[Found] = []

        def ready() -> bool:
            value = look()
            if value is not None:
                found.append(value)
            return value is not None or self.failure is not None

        while True:
            with condition:
                condition.wait_for(ready, self.timeout / 4)
            if found:
                return found[0]
            self.check()
            alive()
