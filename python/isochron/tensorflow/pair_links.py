"""The native link over TensorFlow's own collectives: what one worker tells another is a broadcast in a group of two.

Every worker sends to every other in a group of its own. The servers that the strategy has started carry them, so that a
job needs no ports but those of TF_CONFIG. The link gets one end of a pair of local sockets for every other worker; two
threads carry what comes out of the other end to that worker, and back; what they carry is sealed from link to link,
with keys that come from the one that the workers share. A broadcast ends when its receiver has it. Of
the types that broadcasts know, bool is the one with the size of a byte; nobody looks at the values.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import tensorflow as tf

from isochron._core import TcpLink
from isochron.errors import PeerError
from isochron.tensorflow.peers import Peers

_FIRST = 4096  # bytes of the first broadcast of a frame: its length, and what fits
_MOST = 1 << 22  # bytes of a frame
_FIRST_GROUP = 1 << 20  # strategies count theirs from 1
_FAREWELL_SECONDS = 5.0
_HEAD = struct.Struct("!I")

_networks = itertools.count()  # of this process; all workers count alike


class PairNetwork:
    """Collective: all workers make one, after the strategy has been made."""

    def __init__(self, rank: int, peers: Peers, timeout: float) -> None:
        size = len(peers.hosts)
        self._timeout = timeout
        self.link = TcpLink(rank, peers.hosts, timeout)
        first = _FIRST_GROUP + next(_networks) * size * size
        self._pairs = []
        for other in set(range(size)) - {rank}:
            ours, theirs = socket.socketpair()
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
            groups = first + rank * size + other, first + other * size + rank
            self.link.connect(other, theirs.detach(), *(peers.key_for(f"frames of group {group}") for group in groups))
            self._pairs.append(_Pair(self.link, ours, other, groups, peers, timeout))

    def say_last_words(self) -> None:
        """When the link has failed: until the others know why, for some seconds at most."""
        if self.link.failure is not None:
            self.link.leave(orderly=False)
            self.close(orderly=False)

    def close(self, orderly: bool) -> None:
        """After the link. Who ends before it has heard all goodbyes ends the collectives of those who say them."""
        now = time.monotonic()
        for pair in self._pairs:
            pair.sending.join(max(0.0, now + _FAREWELL_SECONDS - time.monotonic()))
        for pair in self._pairs:
            pair.receiving.join(max(0.0, now + (self._timeout if orderly else 0.0) - time.monotonic()))


class _Pair:
    """Two threads between a local socket and another worker."""

    def __init__(
        self, link: TcpLink, end: socket.socket, rank: int, groups: tuple[int, int], peers: Peers, timeout: float
    ) -> None:
        self._link, self._end, self._rank = link, end, rank
        self._outgoing, self._incoming = groups
        self._peers, self._timeout = peers, timeout
        self.sending, self.receiving = (
            threading.Thread(target=self._run, args=(carry,), name=f"isochron-{name}-{rank}", daemon=True)
            for carry, name in ((self._carry_out, "send"), (self._carry_in, "receive")))  # fmt: skip
        self.sending.start()
        self.receiving.start()

    def _run(self, carry: Callable[[], None]) -> None:
        try:
            carry()
        except PeerError as error:
            self._link.fail(type(error).__name__, str(error), error.ranks, error.hosts)
        except (OSError, tf.errors.OpError) as error:
            self._link.lose(self._rank, str(error).splitlines()[0])

    def _carry_out(self) -> None:
        """An empty frame says that no more will come."""
        while True:
            data = self._end.recv(_MOST)
            while data and len(data) < _MOST:  # what else is there goes along
                with suppress(BlockingIOError):
                    more = self._end.recv(_MOST - len(data), socket.MSG_DONTWAIT)
                    data += more
                    if more:
                        continue
                break
            frame = np.zeros(_FIRST + _rest(len(data)), np.uint8)
            frame[: _HEAD.size + len(data)] = np.frombuffer(_HEAD.pack(len(data)) + data, np.uint8)
            self._send(frame[:_FIRST], 0)
            if len(frame) > _FIRST:
                self._send(frame[_FIRST:], len(frame).bit_length())
            if not data:
                return

    def _carry_in(self) -> None:
        while True:
            frame = self._receive(_FIRST, 0)
            (length,) = _HEAD.unpack(frame[: _HEAD.size].tobytes())
            if length > _MOST:
                raise OSError(f"a frame of {length} bytes; permitted: {_MOST}")
            if length == 0:
                self._end.shutdown(socket.SHUT_WR)
                return
            rest = _rest(length)
            if rest > 0:
                frame = np.concatenate((frame, self._receive(rest, (_FIRST + rest).bit_length())))
            self._end.sendall(frame[_HEAD.size : _HEAD.size + length].data)

    def _send(self, message: np.ndarray, number: int) -> None:
        with self._peers.watched(f"a message to rank {self._rank}"), tf.device("CPU:0"):
            tf.raw_ops.CollectiveBcastSendV2(
                input=message.view(np.bool_), group_size=2, group_key=self._outgoing, instance_key=number,
                timeout_seconds=2 * self._timeout)  # fmt: skip  # a shard may pause for that long

    def _receive(self, size: int, number: int) -> np.ndarray:
        """For as long as it takes: who stands still is known by its silence, or by TensorFlow's heartbeats."""
        with self._peers.watched(f"a message from rank {self._rank}"), tf.device("CPU:0"):
            return tf.raw_ops.CollectiveBcastRecvV2(
                group_size=2, group_key=self._incoming, instance_key=number, shape=[size], T=tf.bool,
                timeout_seconds=0.0).numpy().view(np.uint8)  # fmt: skip


def _rest(length: int) -> int:
    """How many bytes follow the first broadcast: few different numbers, since TensorFlow remembers each."""
    rest = _HEAD.size + length - _FIRST
    return 0 if rest <= 0 else 1 << max(rest - 1, _FIRST).bit_length()
