"""What a worker calls: the coordinator for assignments, all shards for values and updates. What of it is in its own
process it calls directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from isochron._core import (
    Assignment, Failure, IterationReport, ParameterLayout, PullHeader, PushAnswer, PushHeader,
)  # fmt: skip
from isochron.errors import Error, PeerError, PeerLostError
from isochron.served.alarm import Alarm, error_of
from isochron.served.coordination import Coordination
from isochron.served.network import Link
from isochron.served.shard import Shard
from isochron.served.wire import Kind

NEWS_SECONDS = 1.0


def _nothing() -> None:
    """Nobody needs to be told that we still wait: we wait for ourselves."""


class Client:
    """Not thread-safe. `values` and `gradients` are bytes, by strip."""

    def __init__(
        self,
        rank: int,
        layout: ParameterLayout,
        links: dict[int, Link],
        shard: Shard,
        coordination: Coordination | None,
        alarm: Alarm,
    ) -> None:
        self._rank = rank
        self._links = links  # to all others, by rank
        self._shard = shard
        self._coordination = coordination
        self._alarm = alarm
        self.values = [np.zeros(strip.bytes, np.uint8) for strip in layout.strips]
        self.gradients = [np.zeros(strip.bytes, np.uint8) for strip in layout.strips]
        ranks = range(len(links) + 1)
        self._values_of = [_parts(layout, self.values, shard) for shard in ranks]
        self._gradients_of = [_parts(layout, self.gradients, shard) for shard in ranks]
        self._pull = PullHeader()
        self._pushing = False
        self._own_staleness = 0
        self.sent = 0  # pushes, to each shard one

    def ask(self, report: IterationReport) -> Assignment:
        """The coordinator, which rank 0 has."""
        with self.telling_others():
            if self._coordination is not None:
                return self._coordination.ask(self._rank, report, _nothing)
            link = self._links[0]
            link.send(Kind.REPORT, report.encode())
            return link.seat.decoded(Assignment, self._reply(link, Kind.ASSIGNMENT))

    def start_pull(self, pull: PullHeader) -> None:
        self._pull = pull
        with self.telling_others():
            for link in self._links.values():
                link.send(Kind.PULL, pull.encode())

    def finish_pull(self) -> None:
        with self.telling_others():
            self._shard.pull(self._pull, self._values_of[self._rank], _nothing)
            for rank, link in self._links.items():
                self._reply(link, Kind.VALUES)
                link.receive_into(self._values_of[rank])

    def start_push(self, push: PushHeader) -> None:
        """What `gradients` hold, which may be overwritten as soon as this returns."""
        with self.telling_others():
            message = push.encode()
            for rank, link in self._links.items():
                link.send(Kind.PUSH, message, None if push.skipped else self._gradients_of[rank])
            self._pushing = True
            self._own_staleness = self._shard.push(push, self._gradients_of[self._rank], _nothing)
            if not push.skipped:
                self.sent += len(self._gradients_of)

    def finish_push(self) -> int:
        """When all shards have it: the largest staleness."""
        if not self._pushing:
            return 0
        with self.telling_others():
            replies = [
                link.seat.decoded(PushAnswer, self._reply(link, Kind.ANSWER)) for link in self._links.values()
            ]
            self._pushing = False
            return max([self._own_staleness, *(reply.staleness for reply in replies)])

    def _reply(self, link: Link, expected: Kind) -> bytes:
        while True:
            kind, message = link.receive()
            if kind is Kind.FAILURE:
                raise error_of(link.seat.decoded(Failure, message))
            if kind is expected:
                return message
            if kind is not Kind.WAIT:
                seat = link.seat
                words = f"{seat} answered with a frame of kind {kind.name}; permitted: {expected.name}"
                raise PeerError(words, [seat.rank], [seat.host])

    @contextmanager
    def telling_others(self) -> Iterator[None]:
        """What fails becomes the first failure that is known here. Whoever sees our link close later knows then
        whose fault it was."""
        try:
            self._alarm.check()
            yield
        except Error as error:
            if isinstance(error, PeerLostError):
                self._alarm.listen(NEWS_SECONDS)  # who left us may have said why, on its own way to us
            self._alarm.ring(error)
            failure = self._alarm.failure
            assert failure is not None
            for link in self._links.values():
                if link.seat.rank not in failure.ranks:
                    with suppress(PeerError):
                        link.send(Kind.FAILURE, failure.encode())
            raise error_of(failure) from (None if str(error) == failure.text else error)

    def close(self, orderly: bool = True) -> None:
        """Without a goodbye the others take this worker for lost."""
        if self._coordination is not None and orderly:
            self._coordination.leave(self._rank)
        for link in self._links.values():
            if orderly and self._alarm.failure is None:
                with suppress(PeerError):
                    link.send(Kind.GOODBYE)
            link.close()
        self._links = {}


def _parts(layout: ParameterLayout, arrays: list[np.ndarray], shard: int) -> list[np.ndarray]:
    widths = [strip.width for strip in layout.strips]
    return [arrays[chunk.strip][chunk.first * widths[chunk.strip] : chunk.last * widths[chunk.strip]]
            for chunk in layout.chunks_on(shard)]  # fmt: skip
