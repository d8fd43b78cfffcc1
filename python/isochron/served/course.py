"""A worker's way through an asynchronous job. One iteration:
  a) next_order() tells the desk that the worker is free, and what there is to say of the iteration before; the answer
     comes at once, or when the bound permits: positions of the epoch, or the call to a meeting;
  b) start_pull() asks all shards for the parameters, which come while samples are fetched; finish_pull();
  c) the framework computes, puts its gradients into `gradients` and calls push();
  d) finish() waits until all shards have applied the update.

At a meeting nothing is under way: come_together() brings everybody the same parameters and compares how many updates
were sent and applied; then, when the framework has dealt with its own state, the course goes on with enter().
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from isochron._core import Dispatcher, Ledger, Worker, push_factor
from isochron.errors import InvariantError
from isochron.options import SharedOptions
from isochron.served.alarm import Alarm
from isochron.served.client import Client
from isochron.served.desk import Desk
from isochron.served.layout import Layout
from isochron.served.messages import Order, Push, Report, Update
from isochron.served.network import Network, Sockets
from isochron.served.server import Server
from isochron.served.shard import Shard, Updater


@dataclass
class Together:
    """How a framework lets workers speak all at once: when the job starts, and at meetings. Both are collective."""

    gather: Callable[[Any], list[Any]]  # what everybody says, by rank: numbers and texts
    sum: Callable[[list[float]], list[float]]
    network: Network | None = None  # None: sockets
    meeting_place: str | None = None  # of sockets: the host of rank 0, as the others know it; None: MASTER_ADDR


@dataclass
class Place:
    """Where the job is in the data, and in its log."""

    epoch: int
    position: int
    samples_per_epoch: int
    ledger: Ledger
    next_update: int


class Course:
    """Collective: all workers make one, with the same layout. `workers` are by rank; `controller`: what the policy has
    learned so far, as bytes."""

    def __init__(
        self,
        rank: int,
        workers: list[Worker],
        options: SharedOptions,
        together: Together,
        layout: Layout,
        updaters: list[Updater],
        place: Place,
        controller: bytes,
    ) -> None:
        self._rank = rank
        self._me = workers[rank]
        self._size = len(workers)
        self._options = options
        self._together = together
        self.layout = layout
        self.place = place
        self.order = Order(first=place.position)
        self.last_update: Update | None = None  # of this worker
        self.samples = 0  # that it used since the last meeting
        self._report = Report()
        self._pushed = False
        self._began = self._asked = self._started = self._ready = time.perf_counter()
        self._alarm = Alarm(options.timeout)
        self._join(workers, updaters, controller)
        together.sum([0.0])
        self._began = time.perf_counter()

    @property
    def in_rounds(self) -> bool:
        return self._options.bound == 0

    @property
    def values(self) -> list[np.ndarray]:
        """Parameters as bytes, by strip: after a pull."""
        return self._client.values

    @property
    def gradients(self) -> list[np.ndarray]:
        """To be filled before push()."""
        return self._client.gradients

    @property
    def updaters(self) -> list[Updater]:
        """Of this worker's shard; at meetings."""
        return self._shard.updaters

    def _join(self, workers: list[Worker], updaters: list[Updater], controller: bytes) -> None:
        network = self._network()
        seats = network.seats
        ranks = range(self._size)
        self._shard = Shard(updaters, ranks, self._options.push_rate, seats[self._rank], self._alarm)
        self._desk = None
        if self._rank == 0:
            ids = [worker.id for worker in workers]
            self._desk = Desk(self._dispatcher(workers, controller), ids, seats, self._alarm)
        self._server = Server(network, self._shard, self._desk, self._alarm)
        links = {rank: network.connect(rank) for rank in ranks if rank != self._rank}
        self._client = Client(self._rank, self.layout, links, self._shard, self._desk, self._alarm)

    def _network(self) -> Network:
        together = self._together
        if together.network is not None:
            return together.network
        return Sockets(self._rank, together.gather, together.meeting_place, self._options.timeout)

    def _dispatcher(self, workers: list[Worker], controller: bytes) -> Dispatcher:
        options = self._options
        return Dispatcher(
            workers,
            options.global_batch,
            bound=options.bound,
            position=self.place.position,
            state=controller,
            policy=options.policy,
            rate=options.rate,
            reference_batch=options.reference_batch,
            warmup_steps=options.warmup_steps,
        )

    # From meeting to meeting.

    def enter(self) -> None:
        """Leaves a meeting. Local: requests that come before their shard or the desk has resumed wait for it."""
        place = self.place
        if place.position == 0:
            place.ledger = Ledger(place.samples_per_epoch)
        if self._desk is not None:
            self._desk.open(place.epoch, place.samples_per_epoch, place.next_update)
        self._shard.resume()
        self.samples = 0
        self.order = Order(first=place.position)

    def come_together(self) -> None:
        """All hold nothing, and the shards have applied everything. Collective."""
        self.start_pull()
        self.finish_pull()
        self._together.sum([0.0])  # all have pulled
        self._shard.pause()
        sent, applied = self._together.sum([float(self._client.sent), float(self._shard.applied)])
        if sent != applied:
            raise InvariantError(f"of {sent:.0f} updates of shards {applied:.0f} were applied")
        place = self.place
        place.position = self.order.last
        if place.position == place.samples_per_epoch:
            if not place.ledger.complete:
                raise InvariantError("an epoch used some sample twice or not at all")
            place.epoch, place.position = place.epoch + 1, 0

    # From order to order.

    def next_order(self, stop: int) -> Order:
        """`stop`: 0, or 1 to end all loops, or 1 plus the number of the signal that asks for it."""
        report, self._report = self._report, Report()
        report.stop = stop
        self._asked = time.perf_counter()
        self.order = self._client.ask(report)
        self._started = time.perf_counter()
        for update in self.order.news:
            self._learn(update)
        return self.order

    def _learn(self, update: Update) -> None:
        place = self.place
        place.ledger.stage(update.position, update.position + update.batch, update.worker)
        place.ledger.commit()
        place.next_update = update.number + 1
        if update.worker == self._me.id:
            self.last_update = update

    def telling_others(self) -> AbstractContextManager[None]:
        """An Error inside ends the job on all workers, with the same words."""
        return self._client.telling_others()

    def start_pull(self) -> None:
        self._client.start_pull()

    def finish_pull(self) -> None:
        self._client.finish_pull()
        self._ready = time.perf_counter()

    def computed(self, loss: float, cpu: float, memory: float, *, warm: bool = True) -> None:
        """The last gradient is there. Not warm: it took longer for once."""
        self._report.compute_seconds = time.perf_counter() - self._ready
        self._report.loss, self._report.cpu, self._report.memory = loss, cpu, memory
        self._report.warm = warm

    def leave_out(self) -> None:
        """After computed(), instead of push(): the gradient is not finite. The job ends if it is to stop then."""
        if self._options.on_nonfinite == "stop":
            self._report.numbers = (
                f"the gradient is not finite on {self._me.name} (rank {self._rank}, loss {self._report.loss}), for "
                f"positions {self.order.first} to {self.order.last} of epoch {self.place.epoch}"
            )

    def push(self, settings: list[dict[str, Any]], weight: float) -> None:
        """The gradients, as means over `weight` samples or other items; `settings` of the optimizer are by strip."""
        order, options = self.order, self._options
        factor = order.learning_rate_factor
        if not self.in_rounds:
            factor *= push_factor(
                options.push_rate, batch=order.batch, global_batch=options.global_batch, workers=self._size
            )
        self._report.rate_factor = factor
        self._client.start_push(Push(order.batch, weight, factor, settings, order.iteration, order.round_samples))
        self._pushed = True

    def finish(self) -> None:
        """The update is applied everywhere; without push() there is none, but the samples are used."""
        if not self._pushed:
            order = self.order
            nothing = Push(order.batch, 0.0, 0.0, [], order.iteration, order.round_samples, skipped=True)
            self._client.start_push(nothing)
        report = self._report
        report.staleness = self._client.finish_push()
        self._pushed = False
        report.finished = True
        report.batch = self.order.batch
        report.start = self._started - self._began
        report.seconds = time.perf_counter() - self._started
        report.waited = self._started - self._asked
        self.samples += report.batch

    def close(self, orderly: bool = True) -> None:
        """Not orderly: the others take this worker for lost."""
        self._client.close(orderly)
        self._server.close(orderly)
