"""Says which worker was lost when an exchange fails.

TensorFlow ends its collectives for good when a worker is gone: at once if the connection breaks, after a while if its
coordination service misses it (coordination.py), after the job's time-out at the latest. Then the roll is called
(roll_call.py): who does not answer is lost; else who is at an earlier step kept the others waiting. Who finds out tells
the others, so that all name the same one even if the finder has left by then. If nobody is lost or late, the error is
the user's own, and stays as it is.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from isochron.errors import Error, PeerError, PeerLostError, TimeoutError
from isochron.served import reach
from isochron.tensorflow import roll_call
from isochron.tensorflow.cluster import Cluster
from isochron.tensorflow.collectives import Collectives

_FAILURES = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
)
_ANSWER_SECONDS = 5.0
_FAREWELL_SECONDS = 5.0
_FAREWELL_POLL_SECONDS = 0.02


class Peers:
    def __init__(self, collectives: Collectives, cluster: Cluster, timeout: float) -> None:
        self._rank, self._timeout = collectives.rank, timeout
        self.hosts: list[str] = [socket.gethostname()]
        self._others: roll_call.Addresses = {}
        self._finding = threading.Lock()
        self._found: tuple[type[PeerError], str, list[int]] | None = None
        self._roll: roll_call.RollCall | None = None
        if collectives.size == 1:
            return
        everybody = reach.listen(collectives.gather, cluster.rendezvous_host)
        self.hosts, self._key = everybody.hosts, everybody.key
        self._others = {rank: place for rank, place in enumerate(everybody.places) if rank != self._rank}
        self._roll = roll_call.RollCall(everybody.listener, self._key, collectives.size)

    def key_for(self, purpose: str) -> bytes:
        """One that the workers of this job share, for that alone."""
        return hmac.digest(self._key, purpose.encode(), "sha256")

    def note(self, step: int) -> None:
        if self._roll is not None:
            self._roll.note(step)

    def announce(self, message: str, ranks: Sequence[int]) -> None:
        """Tells the others why this job cannot go on, and because of whom."""
        if self._others:
            roll_call.tell(self._others, self._key, message, ranks, _ANSWER_SECONDS)

    @contextlib.contextmanager
    def watched(self, what: str) -> Iterator[None]:
        try:
            yield
        except _FAILURES as failure:
            if self._roll is None or not _is_of_collectives(failure):
                raise
            explained = self._explain(what)
            if explained is None:
                raise  # nobody is lost or late: it is an error of one's own
            raise explained from failure

    def _explain(self, what: str) -> Error | None:
        with self._finding:  # threads that fail together say the same
            if self._found is None:
                self._found = self._find_out()
            if self._found is None:
                return None
        kind, message, ranks = self._found
        return kind(f"{what}: {message}", ranks, [self.hosts[rank] for rank in ranks])

    def _find_out(self) -> tuple[type[PeerError], str, list[int]] | None:
        assert self._roll is not None
        steps = roll_call.call(self._others, self._key, _ANSWER_SECONDS)
        heard = self._roll.heard()
        if heard is not None:
            return PeerLostError, *heard
        mine = self._roll.at
        lost = [rank for rank, step in steps.items() if step is None]
        late = [rank for rank, step in steps.items() if step is not None and step < mine]
        names = ", ".join(f"task {rank} on {self.hosts[rank]}" for rank in lost or late)
        if not lost and not late:
            return None
        if lost:
            message = f"{names} is lost; start the job again from its last checkpoint"
        else:
            message = f"{names} kept the others waiting for more than {self._timeout:g} s"
        self.announce(message, lost or late)
        return PeerLostError if lost else TimeoutError, message, lost or late

    def close(self, orderly: bool) -> None:
        """Orderly: when all are here, or some seconds later. Who receives in a collective asks for the last part, when
        the sender may be through: if that ended at once, the collective would fail."""
        if self._roll is None:
            return
        self._roll.note(roll_call.DONE)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while orderly and self._found is None and time.monotonic() < deadline:
            steps = roll_call.call(self._others, self._key, _ANSWER_SECONDS).values()
            if all(step is None or step == roll_call.DONE for step in steps):
                break
            time.sleep(_FAREWELL_POLL_SECONDS)
        self._roll.close()


def _is_of_collectives(failure: tf.errors.OpError) -> bool:
    """Whether the others are to blame, and not the user's own operation."""
    if isinstance(failure, (tf.errors.UnavailableError, tf.errors.DeadlineExceededError)):
        return True
    return "ollective" in str(failure) or "coordination" in str(failure)
