"""Threads that answer the other workers, one for each: its requests come one after the other."""

from __future__ import annotations

import logging

import numpy as np

from isochron._core import Failure, IterationReport, PullHeader, PushAnswer, PushHeader
from isochron.errors import Error, PeerError
from isochron.served.alarm import Alarm, error_of, failure_of
from isochron.served.coordination import Coordination
from isochron.served.network import Link, Network
from isochron.served.shard import Shard
from isochron.served.wire import Kind

log = logging.getLogger("isochron")


class Server:
    """`coordination` is None where it is not. Serves from the moment it is made until all others have said goodbye."""

    def __init__(self, network: Network, shard: Shard, coordination: Coordination | None, alarm: Alarm) -> None:
        self._network = network
        self._shard = shard
        self._coordination = coordination
        self._alarm = alarm
        self._closing = False
        network.serve(self._serve)

    def _serve(self, link: Link) -> None:
        try:
            self._answer_all(link)
        except Exception as error:
            if not self._closing:
                if not isinstance(error, PeerError):
                    log.exception("serving %s failed", link.seat)
                    words = f"{link.seat} sent what cannot be served ({type(error).__name__}: {error})"
                    error = PeerError(words, [link.seat.rank], [link.seat.host])
                self._alarm.ring(error)
        finally:
            link.close()

    def _answer_all(self, link: Link) -> None:
        seat = link.seat
        gradients, values = self._shard.buffers(), self._shard.buffers()
        while True:
            kind, message = link.receive(patient=True)
            if kind is Kind.GOODBYE:
                if self._coordination is not None:
                    self._coordination.leave(seat.rank)
                return
            if kind is Kind.FAILURE:
                self._alarm.ring(error_of(seat.decoded(Failure, message)))
                continue
            push = seat.decoded(PushHeader, message) if kind is Kind.PUSH else None
            if push is not None and not push.skipped:
                link.receive_into(gradients)
            try:
                self._alarm.check()
                answer = self._answer(link, kind, message, push, gradients, values)
            except Exception as error:
                if not isinstance(error, Error):
                    log.exception("serving %s failed", seat)
                self._alarm.ring(error)
                answer = Kind.FAILURE, failure_of(error).encode(), None
            link.send(*answer)

    def _answer(
        self, link: Link, kind: Kind, message: bytes, push: PushHeader | None, gradients: list[np.ndarray],
        values: list[np.ndarray],
    ) -> tuple[Kind, bytes, list[np.ndarray] | None]:  # fmt: skip
        seat = link.seat

        def alive() -> None:
            link.send(Kind.WAIT)

        if push is not None:
            answer = PushAnswer()
            answer.iteration, answer.staleness = push.iteration, self._shard.push(push, gradients, alive)
            return Kind.ANSWER, answer.encode(), None
        if kind is Kind.PULL:
            self._shard.pull(seat.decoded(PullHeader, message), values, alive)
            return Kind.VALUES, b"", values
        if kind is Kind.REPORT and self._coordination is not None:
            report = seat.decoded(IterationReport, message)
            return Kind.ASSIGNMENT, self._coordination.ask(seat.rank, report, alive).encode(), None
        raise PeerError(f"{seat} sent a frame of kind {kind.name}, which is not for here", [seat.rank], [seat.host])

    def close(self, orderly: bool) -> None:
        """What the others lose by it they have no use for any more."""
        self._closing = True
        self._network.close(orderly and self._alarm.failure is None)
