"""The native session of a worker, as the frameworks use it."""

from __future__ import annotations

import atexit
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from isochron._core import AsyncSession, ParameterLayout, Replica, State, TcpLink, UpdateRecord
from isochron.errors import Error
from isochron.options import SharedOptions


class Updater(Protocol):
    """A framework's arithmetic on one chunk. Arrays are bytes (numpy.uint8) of the chunk's numbers, which belong to the
    caller. One call at a time, from any thread."""

    size: int  # bytes

    def read(self, into: np.ndarray) -> None:
        """The present values."""

    def add(self, gradient: np.ndarray, weight: float, first: bool) -> None:
        """To a sum of gradients times weights, which begins with the first."""

    def take_mean(self, weight: float) -> np.ndarray:
        """That sum divided by all weights."""

    def step(self, gradient: np.ndarray, settings: dict[str, Any], factor: float) -> None:
        """Moves the values; `settings` are the optimizer's of the worker, `factor` multiplies its learning rate."""


@dataclass
class Owner:
    """What a job supplies."""

    gather: Callable[[bytes], list[bytes]]  # what everybody says, by rank; collective
    average: Callable[[int], None]  # at a barrier, when the parameters are here: what else is to be made equal
    take_record: Callable[[UpdateRecord], None]  # an update became known
    # Whether a barrier counts, for all workers that are left, if it does here or not.
    agree: Callable[[bool], bool] = bool
    # For a chunk that was lost with its worker, an updater with these values.
    restore_chunk: Callable[[int, np.ndarray], Updater] | None = None
    closed: Callable[[bool], None] | None = None  # the session is, in good order or not
    warn: Callable[[str], None] = logging.getLogger("isochron").warning


class Session(AsyncSession):
    """Collective: all workers make one, with the same layout. It begins where `replica` is; `updaters` are of our own
    chunks."""

    def __init__(
        self,
        owner: Owner,
        replica: Replica,
        options: SharedOptions,
        link: TcpLink,
        layout: ParameterLayout,
        updaters: Sequence[Updater],
        next_record: int,
    ) -> None:
        super().__init__(owner, replica, next_record)
        workers, rank = replica.workers, replica.rank
        self.layout = layout
        self.values = [np.zeros(strip.bytes, np.uint8) for strip in layout.strips]  # after a pull
        self.gradients = [np.zeros(strip.bytes, np.uint8) for strip in layout.strips]  # to be filled before send()
        self._closed = owner.closed
        self._me = f"{workers[rank].name} (rank {rank}"
        self._stops = options.on_nonfinite == "stop"
        learned = State(replica.state()).part("controller").to_bytes()
        self.begin(link, layout, self.values, list(updaters), learned, workers)
        atexit.register(self._leave_at_exit)

    def leave_out(self) -> None:
        """After computed(), instead of send(): the gradient is not finite. The job ends if it is to stop then."""
        if self._stops:
            order = self.order
            self.stop_for(
                f"the gradient is not finite on {self._me}, loss {self.loss}), for positions {order.first} to "
                f"{order.last} of epoch {self.epoch}"
            )

    def send(self, settings: list[dict[str, Any]], weight: float) -> None:
        """What `gradients` hold, until finish(): means over `weight` samples or other items; `settings` of the
        optimizer are by strip."""
        self.push(weight, [json.dumps(one).encode() for one in settings], self.gradients)

    def arrive(self, replica: Replica) -> None:
        """At a barrier, where all know the same: it takes the place of what the replica knows."""
        order, state = self.order, State(replica.state())
        state.put("controller", State(order.controller))
        state.put("place.ledger", State(self.ledger.state()))
        state.set("place.epoch", self.epoch)
        state.set("place.position", self.position)
        state.set("stopping", order.stopping)
        state.set("stop_signal", order.stop_signal)
        replica.take_over(state.to_bytes())

    @contextmanager
    def telling_others(self) -> Iterator[None]:
        """An Error inside ends the job on all workers, with the same words."""
        try:
            yield
        except Error as error:
            self.fail(type(error).__name__, str(error))
            raise

    def close(self, orderly: bool) -> None:
        """Not orderly: the others take this worker for lost."""
        atexit.unregister(self._leave_at_exit)
        super().close(orderly)
        if self._closed is not None:
            self._closed(orderly)

    def _leave_at_exit(self) -> None:
        """Where nobody has closed the job."""
        self.close(orderly=self.at_barrier and not hasattr(sys, "last_value"))
