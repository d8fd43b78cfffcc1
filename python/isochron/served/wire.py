"""Frames between two workers: messages of the native module as bytes, and numbers as they lie in memory.

A frame is the length of its message (4 bytes, big-endian), its kind (1 byte), the message, and a body whose length both
sides know. Nothing is pickled, no length is believed beyond its bound, and frames come only after both sides have shown
that they know the job's key (isochron.door).
"""

from __future__ import annotations

import enum
import socket
import struct
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from isochron import door
from isochron.errors import Error, PeerError, PeerLostError, TimeoutError

HEAD = struct.Struct("!IB")
MOST = 256 << 20  # bytes of a message; records of a long wait may be many
Message = TypeVar("Message", bound="Decoded", covariant=True)


class Decoded(Protocol):
    @staticmethod
    def decode(bytes: bytes) -> Decoded: ...


class Kind(enum.IntEnum):
    """What a frame is. Bodies follow PUSH, unless it has no gradient, and VALUES."""

    REPORT = 1  # a worker asks for an assignment
    ASSIGNMENT = 2
    PULL = 3
    VALUES = 4
    PUSH = 5
    ANSWER = 6
    FAILURE = 7  # in place of any answer, or told without being asked
    WAIT = 8  # the answer takes its time
    GOODBYE = 9


@dataclass(frozen=True)
class Seat:
    """Where a worker is reached."""

    rank: int
    host: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"

    def kind_of(self, number: int, length: int) -> Kind:
        """The kind of a frame that this worker sent."""
        try:
            if length <= MOST:
                return Kind(number)
        except ValueError:
            pass
        words = f"{self} sent a frame of kind {number} and {length} bytes; permitted: kinds 1 to 9 and {MOST} bytes"
        raise PeerError(words, [self.rank], [self.host])

    def decoded(self, kind: type[Message], message: bytes) -> Message:
        """What this worker sent."""
        try:
            return kind.decode(message)  # type: ignore[return-value]
        except Error as error:
            raise PeerError(f"{self} sent what cannot be read: {error}", [self.rank], [self.host]) from error


class Connection:
    """To one worker. Every failure is a PeerError that names it. Not thread-safe."""

    def __init__(self, link: socket.socket, seat: Seat, timeout: float) -> None:
        self.seat = seat
        self._link = link
        self._timeout = timeout
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.settimeout(timeout)

    def send(self, kind: Kind, message: bytes = b"", bodies: list[np.ndarray] | None = None) -> None:
        try:
            self._link.sendall(HEAD.pack(len(message), kind) + message)
            for body in bodies or ():
                self._link.sendall(body.data)
        except OSError as error:
            raise self._named(error) from error

    def receive(self, patient: bool = False) -> tuple[Kind, bytes]:
        """`patient`: for as long as it takes until a frame begins."""
        head = bytearray(HEAD.size)
        self._link.settimeout(None if patient else self._timeout)
        self._fill(memoryview(head)[:1])
        self._link.settimeout(self._timeout)
        self._fill(memoryview(head)[1:])
        length, number = HEAD.unpack(head)
        kind = self.seat.kind_of(number, length)
        message = bytearray(length)
        self._fill(memoryview(message))
        return kind, bytes(message)

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
