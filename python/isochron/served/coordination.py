"""Where the workers ask what to do next: the native module's Coordinator decides, this waits and keeps the time."""

from __future__ import annotations

import time
from collections.abc import Callable

from isochron._core import Assignment, Coordinator, IterationReport
from isochron.errors import NumbersError, PeerError, PeerLostError, TimeoutError
from isochron.served.alarm import Alarm
from isochron.served.wire import Seat


class Coordination:
    """Thread-safe."""

    def __init__(self, coordinator: Coordinator, seats: list[Seat], alarm: Alarm) -> None:
        self._coordinator = coordinator
        self._seats = seats
        self._alarm = alarm
        self._changed = alarm.condition()
        self._assignments: dict[int, Assignment] = {}  # by rank, until fetched
        self._heard = time.monotonic()

    def open(self, epoch: int, end: int, next_record: int) -> None:
        """Up to position `end` of the epoch the samples may be used."""
        with self._changed:
            self._heard = time.monotonic()
            self._assignments.update(self._coordinator.open(epoch, end, next_record))
            self._changed.notify_all()

    def ask(self, rank: int, report: IterationReport, alive: Callable[[], None]) -> Assignment:
        """Waits for the assignment."""
        with self._changed:
            self._heard = time.monotonic()
            self._assignments.update(self._coordinator.hear(rank, report))
            self._changed.notify_all()
        if self._coordinator.non_finite:
            self._alarm.ring(NumbersError(self._coordinator.non_finite))
        self._complain_about_missing()

        def wait_on() -> None:
            self._check_patience()
            alive()

        return self._alarm.wait(self._changed, lambda: self._assignments.pop(rank, None), wait_on)

    def leave(self, rank: int) -> None:
        """It closed its job; that is in order when nobody needs it any more."""
        with self._changed:
            self._coordinator.leave(rank)
        self._complain_about_missing()

    def _complain_about_missing(self) -> None:
        with self._changed:
            missing = self._coordinator.missing
        if missing:
            end = "closed the job in the middle of an epoch, in which others wait for it"
            self._alarm.ring(self._error(PeerLostError, missing, "{} " + end))

    def _check_patience(self) -> None:
        """Twice the time-out, since those at work may themselves wait for a shard that does not answer, which they
        notice first."""
        patience = 2 * self._alarm.timeout
        with self._changed:
            late = self._coordinator.late if time.monotonic() - self._heard >= patience else []
        if late:
            self._alarm.ring(self._error(TimeoutError, late, f"workers have waited for {patience:g} s for {{}}"))

    def _error(self, kind: type[PeerError], ranks: list[int], text: str) -> PeerError:
        seats = [self._seats[rank] for rank in ranks]
        return kind(text.format(", ".join(map(str, seats))), ranks, [seat.host for seat in seats])
