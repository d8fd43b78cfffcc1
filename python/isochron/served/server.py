"""Threads that answer the other workers, one for each: its requests come one after the other."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from typing import Any

from isochron.errors import Error, PeerError
from isochron.served import wire
from isochron.served.alarm import Alarm, Failure
from isochron.served.desk import Desk
from isochron.served.messages import Push, Report
from isochron.served.shard import Shard

log = logging.getLogger("isochron")


class Server:
    """`desk` is None where it is not. Serves from the moment it is made until all others have said goodbye."""

    def __init__(
        self,
        listener: socket.socket,
        seats: list[wire.Seat],
        token: str,
        shard: Shard,
        desk: Desk | None,
        alarm: Alarm,
    ) -> None:
        self._listener = listener
        self._seats = seats
        self._token = token
        self._shard = shard
        self._desk = desk
        self._alarm = alarm
        self._closing = False
        self._connections: list[wire.Connection] = []
        threading.Thread(target=self._accept, name="isochron-accept", daemon=True).start()

    def _accept(self) -> None:
        """Until everybody is here: nobody can connect after that."""
        with self._listener, suppress(OSError):
            while len(self._connections) < len(self._seats) - 1:
                link, _ = self._listener.accept()
                try:
                    connection = wire.accept(link, self._seats, self._token, self._alarm.timeout)
                except Error as error:
                    log.warning("%s", error)
                    continue
                self._connections.append(connection)
                name = f"isochron-serve-{connection.seat.rank}"
                threading.Thread(target=self._serve, args=(connection,), name=name, daemon=True).start()

    def _serve(self, connection: wire.Connection) -> None:
        try:
            self._answer_all(connection)
        except Exception as error:
            if not self._closing:
                if not isinstance(error, PeerError):
                    log.exception("serving %s failed", connection.seat)
                self._alarm.ring(error)
        finally:
            connection.close()

    def _answer_all(self, connection: wire.Connection) -> None:
        gradients = self._shard.buffers()
        values = self._shard.buffers()
        while True:
            request = connection.receive(patient=True)
            if request["do"] == "goodbye":
                if self._desk is not None:
                    self._desk.leave(connection.seat.rank)
                return
            if request["do"] == "alarm":
                self._alarm.ring(Failure.from_words(request["failure"]).error())
                continue
            if request["do"] == "push" and not request["push"]["skipped"]:
                connection.receive_into(gradients)
            bodies = None
            try:
                self._alarm.check()
                reply = self._answer(connection, request, gradients, values)
                bodies = values if request["do"] == "pull" else None
            except Exception as error:
                if not isinstance(error, Error):
                    log.exception("serving %s failed", connection.seat)
                self._alarm.ring(error)
                reply = {"failure": Failure.of(error).to_words()}
            connection.send(reply, bodies)

    def _answer(
        self, connection: wire.Connection, request: dict[str, Any], gradients: list[Any], values: list[Any]
    ) -> dict[str, Any]:
        rank = connection.seat.rank

        def alive() -> None:
            connection.send({"wait": True})

        if request["do"] == "pull":
            self._shard.pull(rank, values, alive)
            return {"pulled": True}
        if request["do"] == "push":
            return {"staleness": self._shard.push(rank, Push.from_words(request["push"]), gradients, alive)}
        if request["do"] == "ask" and self._desk is not None:
            return {"order": self._desk.ask(rank, Report(**request["report"]), alive).to_words()}
        raise Error(f"{connection.seat} asked for '{request['do']}', which is not to be had here")

    def close(self) -> None:
        """What the others lose by it they have no use for any more."""
        self._closing = True
        self._listener.close()
