"""One worker's share of the parameters: updates come in, values go out. The native module's ShardLedger says which
update is applied, added to a round or left out; the arithmetic is a framework's.

Updates are applied one at a time in the order in which they come; whoever asks for values gets those of one moment.
From barrier to barrier only: in between the shard is paused, and requests wait.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from isochron._core import PullHeader, PushHeader, ShardLedger
from isochron.errors import TimeoutError
from isochron.served.alarm import Alarm
from isochron.served.wire import Seat


class Updater(Protocol):
    """A framework's arithmetic on one chunk. Arrays are bytes (numpy.uint8) of the chunk's numbers. Called from any
    thread, one call at a time."""

    size: int  # bytes

    def read(self, into: np.ndarray) -> None:
        """The present values."""

    def add(self, gradient: np.ndarray, weight: float) -> None:
        """To a sum of gradients times weights."""

    def take_mean(self, weight: float) -> np.ndarray:
        """That sum divided by all weights; the next one begins at 0."""

    def step(self, gradient: np.ndarray, settings: dict[str, Any], factor: float) -> None:
        """Moves the values; `settings` are the optimizer's of the worker, `factor` multiplies its learning rate."""


class Shard:
    """Thread-safe. It begins paused. `strips`: of every updater's chunk the strip."""

    def __init__(self, updaters: list[Updater], strips: list[int], push_rate: str, seat: Seat, alarm: Alarm) -> None:
        self.updaters = updaters  # while it is paused
        self._strips = strips
        self._seat = seat
        self._alarm = alarm
        self._changed = alarm.condition()
        self._ledger = ShardLedger(push_rate)
        self._paused = True
        self._settings = b"[]"  # of the last push, by strip

    @property
    def applied(self) -> int:
        """Pushes, those without a gradient not counted."""
        return self._ledger.updates

    def buffers(self) -> list[np.ndarray]:
        """For gradients or values of this shard."""
        return [np.empty(updater.size, np.uint8) for updater in self.updaters]

    def pause(self) -> None:
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def pull(self, pull: PullHeader, into: list[np.ndarray], alive: Callable[[], None]) -> None:
        self._await_resumption(alive)
        with self._changed:
            if (finished := self._ledger.pull(pull)) is not None:
                weight, rate = finished
                means = [updater.take_mean(weight or 1.0) for updater in self.updaters]
                if weight > 0:
                    self._step(means, rate)
            for updater, array in zip(self.updaters, into, strict=True):
                updater.read(array)

    def push(self, push: PushHeader, gradients: list[np.ndarray], alive: Callable[[], None]) -> int:
        """Its staleness: updates of others since that worker last pulled."""
        self._await_resumption(alive)
        with self._changed:
            taken = self._ledger.take(push)
            if not push.skipped:
                self._settings = push.settings
            if taken.applies:
                self._step(gradients, taken.rate)
            elif taken.adds:
                for updater, gradient in zip(self.updaters, gradients, strict=True):
                    updater.add(gradient, taken.weight)
            return taken.staleness

    def _step(self, gradients: list[np.ndarray], rate: float) -> None:
        settings = json.loads(self._settings)
        for updater, gradient, strip in zip(self.updaters, gradients, self._strips, strict=True):
            updater.step(gradient, settings[strip], rate)

    def _await_resumption(self, alive: Callable[[], None]) -> None:
        patience = 2 * self._alarm.timeout
        deadline = time.monotonic() + patience

        def wait_on() -> None:
            if time.monotonic() > deadline:
                words = f"{self._seat} has not come back from a barrier for {patience:g} s"
                raise TimeoutError(words, [self._seat.rank], [self._seat.host])
            alive()

        self._alarm.wait(self._changed, lambda: None if self._paused else True, wait_on)
