"""A worker's way through an asynchronous job. One iteration:
  a) next_order() tells the coordinator that the worker is free, and what there is to say of the iteration before; the
     answer comes at once, or when the bound permits: positions of the epoch, or the call to a barrier;
  b) start_pull() asks all shards for the parameters, which come while samples are fetched; finish_pull();
  c) the framework computes, puts its gradients into `gradients` and calls push();
  d) finish() waits until all shards have applied the update.

At a barrier nothing is under way: come_together() brings everybody the same parameters and compares how many updates
were sent and applied; then, when the framework has dealt with its own state, the course goes on with enter().
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from isochron._core import (
    Assignment, Coordinator, IterationReport, Ledger, ParameterLayout, PullHeader, PushHeader, UpdateRecord, Worker,
    push_factor,
)  # fmt: skip
from isochron.errors import InvariantError
from isochron.options import SharedOptions
from isochron.served.alarm import Alarm
from isochron.served.client import Client
from isochron.served.coordination import Coordination
from isochron.served.network import Network, Sockets
from isochron.served.server import Server
from isochron.served.shard import Shard, Updater


@dataclass
class Together:
    """How a framework lets workers speak all at once: when the job starts, and at barriers. Both are collective."""

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
    """Collective: all workers make one, with the same layout. `workers` are by rank, `updaters` of our own chunks;
    `controller`: what the policy has learned so far, as bytes."""

    def __init__(
        self,
        rank: int,
        workers: list[Worker],
        options: SharedOptions,
        together: Together,
        layout: ParameterLayout,
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
        self.order = Assignment()
        self.order.first = place.position
        self.last_update: UpdateRecord | None = None  # of this worker
        self.samples = 0  # that it used since the last barrier
        self._iterations = 0  # of this worker
        self._next_report = 0
        self._report = IterationReport()
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
        """The updaters of this worker's shard; at barriers."""
        return self._shard.updaters

    def _join(self, workers: list[Worker], updaters: list[Updater], controller: bytes) -> None:
        network = self._network()
        seats = network.seats
        ranks = range(self._size)
        strips = [chunk.strip for chunk in self.layout.chunks_on(self._rank)]
        self._shard = Shard(updaters, strips, self._options.push_rate, seats[self._rank], self._alarm)
        self._coordination = None
        if self._rank == 0:
            self._coordination = Coordination(self._coordinator(workers, controller), seats, self._alarm)
        self._server = Server(network, self._shard, self._coordination, self._alarm)
        links = {rank: network.connect(rank) for rank in ranks if rank != self._rank}
        self._client = Client(self._rank, self.layout, links, self._shard, self._coordination, self._alarm)

    def _network(self) -> Network:
        together = self._together
        if together.network is not None:
            return together.network
        return Sockets(self._rank, together.gather, together.meeting_place, self._options.timeout)

    def _coordinator(self, workers: list[Worker], controller: bytes) -> Coordinator:
        options = self._options
        return Coordinator(
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

    # From barrier to barrier.

    def enter(self) -> None:
        """Leaves a barrier. Local: requests that come before their shard or the coordinator has resumed wait for it."""
        place = self.place
        if place.position == 0:
            place.ledger = Ledger(place.samples_per_epoch)
        if self._coordination is not None:
            self._coordination.open(place.epoch, place.samples_per_epoch, place.next_update)
        self._shard.resume()
        self.samples = 0
        self.order = Assignment()
        self.order.first = place.position

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

    # From assignment to assignment.

    def next_order(self, stop: int) -> Assignment:
        """`stop`: 0, or 1 to end all loops, or 1 plus the number of the signal that asks for it."""
        report, self._report = self._report, IterationReport()
        report.sequence, report.stop = self._next_report, stop
        self._next_report += 1
        self._asked = time.perf_counter()
        self.order = self._client.ask(report)
        self._started = time.perf_counter()
        for update in self.order.records:
            self._learn(update)
        return self.order

    def _learn(self, update: UpdateRecord) -> None:
        place, worker = self.place, update.worker
        place.ledger.stage(update.position, update.position + worker.batch, worker.id)
        place.ledger.commit()
        place.next_update = update.step + 1
        if worker.id == self._me.id:
            self.last_update = update

    def telling_others(self) -> AbstractContextManager[None]:
        """An Error inside ends the job on all workers, with the same words."""
        return self._client.telling_others()

    def start_pull(self) -> None:
        pull = PullHeader()
        pull.worker, pull.iteration = self._me.id, self._iterations
        pull.rounds = self.order.iteration if self.in_rounds else 0
        self._client.start_pull(pull)

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
            self._report.non_finite = (
                f"the gradient is not finite on {self._me.name} (rank {self._rank}, loss {self._report.loss}), for "
                f"positions {self.order.first} to {self.order.last} of epoch {self.place.epoch}"
            )

    def push(self, settings: list[dict[str, Any]], weight: float) -> None:
        """The gradients, as means over `weight` samples or other items; `settings` of the optimizer are by strip."""
        order, options = self.order, self._options
        factor = order.decision.learning_rate_factor
        if not self.in_rounds:
            factor *= push_factor(
                options.push_rate, batch=order.batch, global_batch=options.global_batch, workers=self._size
            )
        self._report.rate_factor = factor
        push = self._header()
        push.weight, push.rate, push.settings = weight, factor, json.dumps(settings).encode()
        self._client.start_push(push)
        self._pushed = True

    def _header(self) -> PushHeader:
        push = PushHeader()
        push.worker, push.iteration = self._me.id, self._iterations
        push.stand_for(self.order, self.place.epoch)
        return push

    def finish(self) -> None:
        """The update is applied everywhere; without push() there is none, but the samples are used."""
        if not self._pushed:
            nothing = self._header()
            nothing.skipped = True
            self._client.start_push(nothing)
        report = self._report
        report.staleness = self._client.finish_push()
        self._pushed = False
        self._iterations += 1
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
