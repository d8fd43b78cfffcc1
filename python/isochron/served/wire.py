"""Frames between two workers: words as JSON, and numbers as they lie in memory.

A frame is the length of its words (4 bytes, big-endian), the words, and a body whose length both sides know or the
words say. Nothing is pickled, no length is believed beyond its bound, and a connection is good only after its first
frame has shown the job's token.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isochron.errors import Error, PeerError, PeerLostError, TimeoutError

_LENGTH = struct.Struct("!I")
MOST_WORDS = 256 << 20  # bytes; news of a long wait may be many
MOST_HELLO = 4096  # of a stranger
HELLO_SECONDS = 10.0


@dataclass(frozen=True)
class Seat:
    """Where a worker is reached."""

    rank: int
    host: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"

    def to_words(self) -> dict[str, Any]:
        return asdict(self)


class Connection:
    """To one worker. Every failure is a PeerError that names it. Not thread-safe."""

    def __init__(self, link: socket.socket, seat: Seat, timeout: float) -> None:
        self.seat = seat
        self._link = link
        self._timeout = timeout
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.settimeout(timeout)

    def send(self, words: dict[str, Any], bodies: list[np.ndarray] | None = None) -> None:
        text = json.dumps(words, separators=(",", ":")).encode()
        try:
            self._link.sendall(_LENGTH.pack(len(text)) + text)
            for body in bodies or ():
                self._link.sendall(body.data)
        except OSError as error:
            raise self._named(error) from error

    def receive(self, patient: bool = False, most: int = MOST_WORDS) -> dict[str, Any]:
        """`patient`: for as long as it takes until a frame begins."""
        head = bytearray(_LENGTH.size)
        self._link.settimeout(None if patient else self._timeout)
        self._fill(memoryview(head)[:1])
        self._link.settimeout(self._timeout)
        self._fill(memoryview(head)[1:])
        (length,) = _LENGTH.unpack(head)
        if length > most:
            raise PeerError(f"{self.seat} sent words of {length} bytes; permitted: {most}", [self.seat.rank])
        text = bytearray(length)
        self._fill(memoryview(text))
        try:
            words = json.loads(text)
        except ValueError as error:
            raise PeerError(f"{self.seat} sent what is no JSON ({error})", [self.seat.rank]) from error
        if not isinstance(words, dict):
            raise PeerError(f"{self.seat} sent words that are no object", [self.seat.rank])
        return words

    def receive_into(self, bodies: list[np.ndarray]) -> None:
        for body in bodies:
            self._fill(body.data)

    def _fill(self, view: memoryview) -> None:
        try:
            while view.nbytes > 0:
                count = self._link.recv_into(view)
                if count == 0:
                    raise ConnectionResetError("it closed the connection")
                view = view[count:]
        except OSError as error:
            raise self._named(error) from error

    def _named(self, error: OSError) -> PeerError:
        about = [self.seat.rank], [self.seat.host]
        if isinstance(error, socket.timeout):
            return TimeoutError(f"{self.seat} has not answered for {self._timeout:g} s", *about)
        return PeerLostError(f"lost {self.seat} ({error})", *about)

    def close(self) -> None:
        self._link.close()


def listen(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=1024)


def connect(seat: Seat, rank: int, token: str, timeout: float) -> Connection:
    """To the worker at `seat`, as the worker of `rank`."""
    try:
        link = socket.create_connection((seat.address, seat.port), timeout)
    except OSError as error:
        words = f"cannot reach {seat} at {seat.address} port {seat.port} within {timeout:g} s ({error})"
        raise PeerLostError(words, [seat.rank], [seat.host]) from error
    connection = Connection(link, seat, timeout)
    connection.send({"rank": rank, "token": token})
    connection.receive(most=MOST_HELLO)
    return connection


def accept(link: socket.socket, seats: list[Seat], token: str, timeout: float) -> Connection:
    """The other side of connect(). Raises Error for whoever does not know the token, and closes the connection."""
    stranger = Connection(link, Seat(-1, "unknown host", "", 0), HELLO_SECONDS)
    try:
        hello = stranger.receive(most=MOST_HELLO)
        rank = hello.get("rank")
        known = hmac.compare_digest(str(hello.get("token")).encode(), token.encode())
        if not known or type(rank) is not int or not 0 <= rank < len(seats):
            raise Error("somebody connected who is not of this job")
        connection = Connection(link, seats[rank], timeout)
        connection.send({"rank": rank})
        return connection
    except BaseException:
        link.close()
        raise
