"""isochron.served over TensorFlow's own collectives: what one worker tells another is a broadcast in a group of two.

Every worker's requests to every other, and the answers, have a group each. The servers that the strategy has started
carry them, so that a job needs no ports but those of TF_CONFIG. A broadcast ends when its receiver has it. Of the types
that broadcasts know, bool is the one with the size of a byte; nobody looks at the values.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import tensorflow as tf

from isochron.errors import PeerError, PeerLostError
from isochron.served.alarm import failure_of
from isochron.served.network import Link
from isochron.served.wire import HEAD, Kind, Seat
from isochron.tensorflow.peers import Peers

_FIRST = 4096  # bytes of the first broadcast of a frame: its head, and most messages whole
_MOST = 64 << 20  # bytes of a message
_FIRST_GROUP = 1 << 20  # strategies count theirs from 1
_FIRST_BODY = 64  # broadcasts of a group that differ in size differ in number: bodies from here, others by its bits
_FAREWELL_SECONDS = 5.0

_networks = itertools.count()  # of this process; all workers count alike


class PairNetwork:
    """Collective: all workers make one, after the strategy has been made."""

    def __init__(self, rank: int, peers: Peers, timeout: float) -> None:
        self.seats = [Seat(rank, host, "", 0) for rank, host in enumerate(peers.hosts)]
        self._me = self.seats[rank]
        self._peers = peers
        self._timeout = timeout
        self._first_group = _FIRST_GROUP + next(_networks) * 2 * len(self.seats) ** 2
        self._serving: list[threading.Thread] = []

    def serve(self, answer: Callable[[Link], None]) -> None:
        for seat in self.seats:
            if seat != self._me:
                requests, answers = self._groups(asks=seat.rank, serves=self._me.rank)
                link = PairLink(seat, answers, requests, self._peers, self._timeout)
                name = f"isochron-serve-{seat.rank}"
                self._serving.append(threading.Thread(target=answer, args=(link,), name=name, daemon=True))
                self._serving[-1].start()

    def connect(self, rank: int) -> Link:
        requests, answers = self._groups(asks=self._me.rank, serves=rank)
        lost = PeerLostError(f"lost {self._me} (it left the job)", [self._me.rank], [self._me.host])
        farewell = failure_of(lost).encode()
        return PairLink(self.seats[rank], requests, answers, self._peers, self._timeout, farewell)

    def _groups(self, asks: int, serves: int) -> tuple[int, int]:
        first = self._first_group + 2 * (asks * len(self.seats) + serves)
        return first, first + 1

    def close(self, orderly: bool) -> None:
        """Who ends before it has heard all goodbyes ends the collectives of those who say them."""
        deadline = time.monotonic() + (self._timeout if orderly else 0.0)
        for thread in self._serving:
            thread.join(max(0.0, deadline - time.monotonic()))


class PairLink:
    """network.Link. `farewell` is the failure that is sent when it is closed without a goodbye."""

    def __init__(
        self,
        seat: Seat,
        outgoing: int,
        incoming: int,
        peers: Peers,
        timeout: float,
        farewell: bytes | None = None,
    ) -> None:
        self.seat = seat
        self._outgoing, self._incoming = outgoing, incoming
        self._peers = peers
        self._timeout = timeout
        self._farewell = farewell

    def send(self, kind: Kind, message: bytes = b"", bodies: list[np.ndarray] | None = None) -> None:
        if kind in (Kind.GOODBYE, Kind.FAILURE):
            self._farewell = None
        frame = np.zeros(_FIRST + _padded(len(message)), np.uint8)
        frame[: HEAD.size + len(message)] = np.frombuffer(HEAD.pack(len(message), kind) + message, np.uint8)
        self._send(frame[:_FIRST], 0)
        if len(frame) > _FIRST:
            self._send(frame[_FIRST:], len(frame).bit_length())
        for number, part in enumerate(_parts(bodies or []), _FIRST_BODY):
            self._send(part, number)

    def receive(self, patient: bool = False) -> tuple[Kind, bytes]:
        frame = self._receive(_FIRST, 0, 0.0 if patient else self._timeout)
        length, number = HEAD.unpack(frame[: HEAD.size].tobytes())
        kind = self.seat.kind_of(number, length)
        rest = _padded(length)
        if rest > 0:
            frame = np.concatenate((frame, self._receive(rest, (_FIRST + rest).bit_length(), self._timeout)))
        return kind, frame[HEAD.size : HEAD.size + length].tobytes()

    def receive_into(self, bodies: list[np.ndarray]) -> None:
        for number, part in enumerate(_parts(bodies), _FIRST_BODY):
            part[:] = self._receive(len(part), number, self._timeout)

    def _send(self, message: np.ndarray, number: int) -> None:
        with self._peers.watched(f"a message to {self.seat}"), tf.device("CPU:0"):
            tf.raw_ops.CollectiveBcastSendV2(
                input=message.view(np.bool_), group_size=2, group_key=self._outgoing, instance_key=number,
                timeout_seconds=self._timeout)  # fmt: skip

    def _receive(self, size: int, number: int, timeout: float) -> np.ndarray:
        with self._peers.watched(f"a message from {self.seat}"), tf.device("CPU:0"):
            return tf.raw_ops.CollectiveBcastRecvV2(
                group_size=2, group_key=self._incoming, instance_key=number, shape=[size], T=tf.bool,
                timeout_seconds=timeout).numpy().view(np.uint8)  # fmt: skip

    def close(self) -> None:
        if self._farewell is not None:
            self._timeout = min(self._timeout, _FAREWELL_SECONDS)
            with suppress(PeerError, tf.errors.OpError):
                self.send(Kind.FAILURE, self._farewell)


def _padded(length: int) -> int:
    """How many bytes follow the first broadcast: few different numbers, since TensorFlow remembers each."""
    rest = HEAD.size + length - _FIRST
    return 0 if rest <= 0 else 1 << max(rest - 1, _FIRST).bit_length()


def _parts(bodies: list[np.ndarray]) -> list[np.ndarray]:
    return [body[first : first + _MOST] for body in bodies for first in range(0, len(body), _MOST)]
