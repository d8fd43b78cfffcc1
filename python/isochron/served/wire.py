"""Frames between two workers: words as JSON, and numbers as they lie in memory.

A frame is the length of its words (4 bytes, big-endian), the words, and a body whose length both sides know or the
words say. Nothing is pickled, no length is believed beyond its bound, and frames come only after both sides have shown
that they know the job's key (isochron.door).
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isochron import door
from isochron.errors import PeerError, PeerLostError, TimeoutError

_LENGTH = struct.Struct("!I")
MOST_WORDS = 256 << 20  # bytes; news of a long wait may be many


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

    def words_of(self, text: bytes | bytearray) -> dict[str, Any]:
        """What that worker sent."""
        try:
            return door.read_words(text)
        except ValueError as error:
            raise PeerError(f"{self} sent words that cannot be read: {error}", [self.rank], [self.host]) from error


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

    def receive(self, patient: bool = False) -> dict[str, Any]:
        """`patient`: for as long as it takes until a frame begins."""
        head = bytearray(_LENGTH.size)
        self._link.settimeout(None if patient else self._timeout)
        self._fill(memoryview(head)[:1])
        self._link.settimeout(self._timeout)
        self._fill(memoryview(head)[1:])
        (length,) = _LENGTH.unpack(head)
        if length > MOST_WORDS:
            raise PeerError(f"{self.seat} sent words of {length} bytes; permitted: {MOST_WORDS}", [self.seat.rank])
        text = bytearray(length)
        self._fill(memoryview(text))
        return self.seat.words_of(text)

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


def connect(seat: Seat, rank: int, key: bytes, timeout: float) -> Connection:
    """To the worker at `seat`, as the worker of `rank`."""
    try:
        link, _ = door.knock(seat.address, seat.port, key, {"rank": rank}, timeout)
    except OSError as error:
        words = f"cannot reach {seat} at {seat.address} port {seat.port} within {timeout:g} s ({error})"
        raise PeerLostError(words, [seat.rank], [seat.host]) from error
    return Connection(link, seat, timeout)
