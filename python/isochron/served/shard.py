"""One worker's share of the parameters: updates come in, values go out.

Updates are applied one at a time in the order in which they come; whoever asks for values gets those of one moment. In
rounds (bound 0) the gradients of a round are added up, weighted, and applied as one. From meeting to meeting only: in
between the shard is paused, and requests wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from isochron._core import ClockTable, push_factor
from isochron.errors import TimeoutError
from isochron.served.alarm import Alarm
from isochron.served.messages import Push
from isochron.served.wire import Seat


class Updater(Protocol):
    """A framework's arithmetic on one slice. Arrays are bytes (numpy.uint8) of the slice's numbers. Called from any
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
    """Thread-safe. It begins paused."""

    def __init__(self, updaters: list[Updater], ranks: Iterable[int], push_rate: str, seat: Seat, alarm: Alarm) -> None:
        self._updaters = updaters
        self._push_rate = push_rate
        self._seat = seat
        self._alarm = alarm
        self._changed = alarm.condition()
        self._clocks = ClockTable()
        for rank in ranks:
            self._clocks.join(rank)
        self._paused = True
        self._weight = 0.0  # in the sum of the round
        self._samples = 0
        self._skipped = False
        self.applied = 0  # pushes, those without a gradient not counted

    @property
    def updaters(self) -> list[Updater]:
        """While it is paused."""
        return self._updaters

    def buffers(self) -> list[np.ndarray]:
        """For gradients or values of this shard."""
        return [np.empty(updater.size, np.uint8) for updater in self._updaters]

    def pause(self) -> None:
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def pull(self, rank: int, into: list[np.ndarray], alive: Callable[[], None]) -> None:
        self._await_resumption(alive)
        with self._changed:
            self._clocks.pull(rank)
            for updater, array in zip(self._updaters, into, strict=True):
                updater.read(array)

    def push(self, rank: int, push: Push, gradients: list[np.ndarray], alive: Callable[[], None]) -> int:
        """Its staleness: updates of others since that worker last pulled."""
        self._await_resumption(alive)
        with self._changed:
            self.applied += not push.skipped
            if push.round_samples > 0:
                self._add_to_round(push, gradients)
                return 0
            if push.skipped:
                return 0
            staleness = self._clocks.push(rank)
            self._step(gradients, push, push.factor * push_factor(self._push_rate, staleness=staleness))
            return staleness

    def _add_to_round(self, push: Push, gradients: list[np.ndarray]) -> None:
        """If one worker has no gradient, nobody's counts, as in step."""
        self._skipped |= push.skipped
        self._samples += push.samples
        if not push.skipped:
            self._weight += push.weight
            for updater, gradient in zip(self._updaters, gradients, strict=True):
                updater.add(gradient, push.weight)
        if self._samples < push.round_samples:
            return
        means = [updater.take_mean(self._weight or 1.0) for updater in self._updaters]
        if not self._skipped and self._weight > 0:
            self._step(means, push, push.factor)
        self._samples, self._weight, self._skipped = 0, 0.0, False

    def _step(self, gradients: list[np.ndarray], push: Push, factor: float) -> None:
        for updater, gradient, settings in zip(self._updaters, gradients, push.settings, strict=True):
            updater.step(gradient, settings, factor)

    def _await_resumption(self, alive: Callable[[], None]) -> None:
        patience = 2 * self._alarm.timeout
        deadline = time.monotonic() + patience

        def wait_on() -> None:
            if time.monotonic() > deadline:
                words = f"{self._seat} has not come back from a meeting for {patience:g} s"
                raise TimeoutError(words, [self._seat.rank], [self._seat.host])
            alive()

        self._alarm.wait(self._changed, lambda: None if self._paused else True, wait_on)
