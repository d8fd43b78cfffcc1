"""What a worker calls: the desk for orders, all shards for values and updates. Its own shard and its own desk it calls
directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from isochron.errors import Error, PeerError, PeerLostError
from isochron.served.alarm import Alarm, Failure
from isochron.served.desk import Desk
from isochron.served.layout import Layout
from isochron.served.messages import Order, Push, Report
from isochron.served.network import Link
from isochron.served.shard import Shard

NEWS_SECONDS = 1.0


def _nothing() -> None:
    """Nobody needs to be told that we still wait: we wait for ourselves."""


class Client:
    """Not thread-safe. `values` and `gradients` are bytes, by strip."""

    def __init__(
        self,
        rank: int,
        layout: Layout,
        links: dict[int, Link],
        shard: Shard,
        desk: Desk | None,
        alarm: Alarm,
    ) -> None:
        self._rank = rank
        self._links = links  # to all others, by rank
        self._shard = shard
        self._desk = desk
        self._alarm = alarm
        self.values = [np.zeros(strip.size, np.uint8) for strip in layout.strips]
        self.gradients = [np.zeros(strip.size, np.uint8) for strip in layout.strips]
        ranks = range(len(links) + 1)
        self._values_of = [_parts(layout, self.values, shard) for shard in ranks]
        self._gradients_of = [_parts(layout, self.gradients, shard) for shard in ranks]
        self._pushing = False
        self._own_staleness = 0
        self.sent = 0  # pushes, to each shard one

    def ask(self, report: Report) -> Order:
        """At the desk, which rank 0 has."""
        with self.telling_others():
            if self._desk is not None:
                return self._desk.ask(self._rank, report, _nothing)
            self._links[0].send({"do": "ask", "report": report.to_words()})
            return Order.from_words(self._reply(self._links[0])["order"])

    def start_pull(self) -> None:
        with self.telling_others():
            for link in self._links.values():
                link.send({"do": "pull"})

    def finish_pull(self) -> None:
        with self.telling_others():
            self._shard.pull(self._rank, self._values_of[self._rank], _nothing)
            for rank, link in self._links.items():
                self._reply(link)
                link.receive_into(self._values_of[rank])

    def start_push(self, push: Push) -> None:
        """What `gradients` hold, which may be overwritten as soon as this returns."""
        with self.telling_others():
            words = {"do": "push", "push": push.to_words()}
            for rank, link in self._links.items():
                link.send(words, None if push.skipped else self._gradients_of[rank])
            self._pushing = True
            self._own_staleness = self._shard.push(self._rank, push, self._gradients_of[self._rank], _nothing)
            if not push.skipped:
                self.sent += len(self._gradients_of)

    def finish_push(self) -> int:
        """When all shards have it: the largest staleness."""
        if not self._pushing:
            return 0
        with self.telling_others():
            replies = [self._reply(link) for link in self._links.values()]
            self._pushing = False
            return max([self._own_staleness, *(int(reply["staleness"]) for reply in replies)])

    def _reply(self, link: Link) -> dict[str, Any]:
        while True:
            words = link.receive()
            if "failure" in words:
                raise Failure.from_words(words["failure"]).error()
            if "wait" not in words:
                return words

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
                        link.send({"do": "alarm", "failure": failure.to_words()})
            raise failure.error() from (None if str(error) == failure.words else error)

    def close(self, orderly: bool = True) -> None:
        """Without a goodbye the others take this worker for lost."""
        if self._desk is not None and orderly:
            self._desk.leave(self._rank)
        for link in self._links.values():
            if orderly and self._alarm.failure is None:
                with suppress(PeerError):
                    link.send({"do": "goodbye"})
            link.close()
        self._links = {}


def _parts(layout: Layout, arrays: list[np.ndarray], shard: int) -> list[np.ndarray]:
    parts = []
    for number, array in enumerate(arrays):
        first, last = layout.bytes_of(number, shard)
        parts.append(array[first:last])
    return parts
