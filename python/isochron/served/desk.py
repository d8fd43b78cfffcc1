"""Where the workers ask what to do next.

It moves words in and out of the native module's Dispatcher, which decides, and numbers the updates: they are the run
log. What became known goes to every worker with its next order, so that all know all, one iteration late at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from isochron._core import Dispatcher, WorkOrder
from isochron.errors import PeerLostError, TimeoutError
from isochron.served.alarm import Alarm, Failure
from isochron.served.messages import Order, Report, Update
from isochron.served.wire import Seat


class Desk:
    """Thread-safe. `ids` are the workers' ids, by rank."""

    def __init__(self, dispatcher: Dispatcher, ids: list[int], seats: list[Seat], alarm: Alarm) -> None:
        self._dispatcher = dispatcher
        self._ids = ids
        self._seats = seats
        self._alarm = alarm
        self._changed = alarm.condition()
        self._open = False
        self._epoch = -1
        self._next_update = 0
        self._news: list[Update] = []  # since the last meeting
        self._told = [0] * len(seats)  # by rank: how many of them
        self._early: list[tuple[int, Report]] = []  # came before it was opened
        self._orders: dict[int, Order] = {}  # by rank, until fetched
        self._attending: set[int] = set()  # ranks that wait for an order or the meeting
        self._gone: set[int] = set()
        self._noted_decision = -1  # whose change an update has told
        self._stopping = False
        self._stop_signal = 0
        self._heard = time.monotonic()

    def open(self, epoch: int, end: int, next_update: int) -> None:
        """Up to position `end` of the epoch the samples may be used."""
        with self._changed:
            if self._epoch not in (-1, epoch):
                self._dispatcher.begin()
            self._epoch, self._next_update = epoch, next_update
            self._news, self._told = [], [0] * len(self._seats)
            self._dispatcher.open(end)
            self._heard = time.monotonic()
            self._open = True
            early, self._early = self._early, []
            for rank, report in early:
                self._hear(rank, report)
            self._changed.notify_all()

    def ask(self, rank: int, report: Report, alive: Callable[[], None]) -> Order:
        """Waits for the order."""
        with self._changed:
            self._heard = time.monotonic()
            if self._open:
                self._hear(rank, report)
            else:
                self._early.append((rank, report))
            self._changed.notify_all()
        if report.numbers:
            self._alarm.ring(Failure("NumbersError", report.numbers).error())
        self._complain_about_the_gone()

        def wait_on() -> None:
            self._check_patience()
            alive()

        return self._alarm.wait(self._changed, lambda: self._orders.pop(rank, None), wait_on)

    def leave(self, rank: int) -> None:
        """It closed its job; that is in order when nobody needs it any more."""
        with self._changed:
            self._gone.add(rank)
        self._complain_about_the_gone()

    # Under the lock.

    def _hear(self, rank: int, report: Report) -> None:
        self._attending.add(rank)
        if report.finished:
            self._note(self._ids[rank], report)
        self._dispatcher.ask(self._ids[rank])
        if report.stop > 0:
            self._stopping = True
            self._stop_signal = max(self._stop_signal, report.stop - 1)
        if self._stopping:
            self._dispatcher.close()
        for order in self._dispatcher.take_orders():
            self._give(order)
        if self._dispatcher.meeting:
            self._call_meeting()

    def _note(self, worker: int, report: Report) -> None:
        decision = self._dispatcher.decision
        seconds = report.seconds if report.warm else math.nan
        first, _ = self._dispatcher.finish(worker, report.batch, seconds, report.cpu, report.memory)
        changed = decision.changed and self._noted_decision != decision.step  # else another update has said so
        self._noted_decision = decision.step
        self._news.append(
            Update(
                number=self._next_update,
                epoch=self._epoch,
                position=first,
                worker=worker,
                batch=report.batch,
                start=report.start,
                seconds=report.seconds,
                compute_seconds=report.compute_seconds,
                waited=report.waited,
                exchange_seconds=max(report.seconds - report.compute_seconds, 0.0),
                rate_factor=report.rate_factor,
                changed=changed,
                reason=decision.reason,
                words=decision.words,
                loss=report.loss,
                staleness=report.staleness,
            )
        )
        self._next_update += 1

    def _give(self, order: WorkOrder) -> None:
        rank = self._ids.index(order.worker)
        self._attending.discard(rank)
        self._orders[rank] = Order(
            first=order.first,
            last=order.last,
            iteration=order.iteration,
            lead=order.lead,
            round_samples=order.round_samples,
            **self._known(rank),
        )

    def _call_meeting(self) -> None:
        for rank in range(len(self._seats)):
            self._orders[rank] = Order(
                meet=True,
                last=self._dispatcher.position,
                iteration=self._dispatcher.slowest,
                controller=self._dispatcher.state().decode(),
                **self._known(rank),
            )
        self._dispatcher.dismiss()
        self._attending.clear()
        self._open = False

    def _known(self, rank: int) -> dict[str, Any]:
        decision = self._dispatcher.decision
        told, self._told[rank] = self._told[rank], len(self._news)
        return {
            "step": decision.step,
            "batch_sizes": decision.batch_sizes,
            "learning_rate_factor": decision.learning_rate_factor,
            "changed": decision.changed,
            "reason": decision.reason,
            "words": decision.words,
            "news": self._news[told:],
            "stopping": self._stopping,
            "stop_signal": self._stop_signal,
        }

    # Not under the lock.

    def _complain_about_the_gone(self) -> None:
        with self._changed:
            waited_for = self._gone - self._attending if self._attending or self._early else set()
            gone = [self._seats[rank] for rank in sorted(waited_for)]
        if gone:
            names = ", ".join(map(str, gone))
            words = f"{names} closed the job in the middle of an epoch, in which others wait for it"
            self._alarm.ring(PeerLostError(words, [seat.rank for seat in gone], [seat.host for seat in gone]))

    def _check_patience(self) -> None:
        """Twice the time-out, since those at work may themselves wait for a shard that does not answer, which they
        notice first."""
        patience = 2 * self._alarm.timeout
        with self._changed:
            waiting = self._attending | {rank for rank, _ in self._early}
            if not waiting or time.monotonic() - self._heard < patience:
                return
            late = [seat for seat in self._seats if seat.rank not in waiting]
        words = f"workers have waited for {patience:g} s for {', '.join(map(str, late))}"
        self._alarm.ring(TimeoutError(words, [seat.rank for seat in late], [seat.host for seat in late]))
