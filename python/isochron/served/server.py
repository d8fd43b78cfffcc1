"""Threads that answer the other workers, one for each: its requests come one after the other."""

from __future__ import annotations

import logging
from typing import Any

from isochron.errors import Error, PeerError
from isochron.served.alarm import Alarm, Failure
from isochron.served.desk import Desk
from isochron.served.messages import Push, Report
from isochron.served.network import Link, Network
from isochron.served.shard import Shard

log = logging.getLogger("isochron")


class Server:
    """`desk` is None where it is not. Serves from the moment it is made until all others have said goodbye."""

    def __init__(self, network: Network, shard: Shard, desk: Desk | None, alarm: Alarm) -> None:
        self._network = network
        self._shard = shard
        self._desk = desk
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
        gradients = self._shard.buffers()
        values = self._shard.buffers()
        while True:
            request = link.receive(patient=True)
            if request["do"] == "goodbye":
                if self._desk is not None:
                    self._desk.leave(link.seat.rank)
                return
            if request["do"] == "alarm":
                self._alarm.ring(Failure.from_words(request["failure"]).error())
                continue
            if request["do"] == "push" and not request["push"]["skipped"]:
                link.receive_into(gradients)
            bodies = None
            try:
                self._alarm.check()
                reply = self._answer(link, request, gradients, values)
                bodies = values if request["do"] == "pull" else None
            except Exception as error:
                if not isinstance(error, Error):
                    log.exception("serving %s failed", link.seat)
                self._alarm.ring(error)
                reply = {"failure": Failure.of(error).to_words()}
            link.send(reply, bodies)

    def _answer(
        self, link: Link, request: dict[str, Any], gradients: list[Any], values: list[Any]
    ) -> dict[str, Any]:
        rank = link.seat.rank

        def alive() -> None:
            link.send({"wait": True})

        if request["do"] == "pull":
            self._shard.pull(rank, values, alive)
            return {"pulled": True}
        if request["do"] == "push":
            return {"staleness": self._shard.push(rank, Push.from_words(request["push"]), gradients, alive)}
        if request["do"] == "ask" and self._desk is not None:
            return {"order": self._desk.ask(rank, Report(**request["report"]), alive).to_words()}
        raise Error(f"{link.seat} asked for '{request['do']}', which is not to be had here")

    def close(self, orderly: bool) -> None:
        """What the others lose by it they have no use for any more."""
        self._closing = True
        self._network.close(orderly and self._alarm.failure is None)
