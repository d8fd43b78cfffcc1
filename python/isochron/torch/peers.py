"""Who the workers are, whether they live, and how they come together again after something broke.

The rendezvous is in the store of the default process group, which a launcher keeps outside the workers. One
rendezvous is one generation g:
  a) everybody writes where it stands under g/here/RANK, and waits until every other member is here or known to be
     gone: marked by the launcher, or a process of this host that has ended;
  b) who does neither within the time-out is evicted: killed if it is on this host, else by its launcher;
  c) the first to have the whole picture writes the list of members; compare-and-set makes it everybody's.
A member that is lost before all have connected is missed in the next generation, which begins at once. Only entries of
the job's own processes count (sealed.py): nobody else can have a worker evicted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from isochron.errors import PeerLostError
from isochron.processes import machine, state_of
from isochron.torch.sealed import POLL_SECONDS, SealedStore


@dataclass(frozen=True)
class Peer:
    rank: int  # in the default process group, for the life of the job
    host: str
    process: int
    machine: str  # equal for processes that see each other's numbers

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host} (process {self.process})"

    @staticmethod
    def here(rank: int) -> Peer:
        return Peer(rank, socket.gethostname(), os.getpid(), machine("pid"))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def names_of(peers: list[Peer]) -> str:
    return ", ".join(map(str, peers)) or "nobody"


class Rendezvous:
    """The store as the workers of a job use it to find each other again."""

    def __init__(self, store: SealedStore, marks: SealedStore, me: Peer, timeout: float) -> None:
        self._store = store
        self._marks = marks  # of the dead and the evicted: the launcher's
        self._me = me
        self._timeout = timeout
        self.generation = 0
        self._barriers = 0  # of this generation

    def close(self) -> None:
        self._store.close()
        self._marks.close()

    def has_ended(self, peer: Peer) -> bool:
        """Whether it is a process of this host that has; nobody is asked."""
        return peer.machine == self._me.machine and state_of(peer.process) in "ZX"

    def is_gone(self, peer: Peer) -> bool:
        if self.has_ended(peer):
            return True
        return self._marks.get(f"dead/{peer.rank}") is not None or self._is_evicted(peer)

    def find_gone(self, peers: list[Peer], patience: float) -> list[Peer]:
        """Who is gone; looks again for `patience` seconds while nobody is, unless one of them lives and has come to the
        next generation, or is stopped: then that is why it does not answer."""
        deadline = time.monotonic() + patience
        while True:
            gone = [peer for peer in peers if self.is_gone(peer)]
            here = any(self._is_here(peer, f"{self.generation + 1}/") for peer in peers)
            known = gone or here or any(self.is_stopped(peer) for peer in peers)
            if known or time.monotonic() >= deadline:
                return gone
            time.sleep(POLL_SECONDS)

    def is_stopped(self, peer: Peer) -> bool:
        """A process of this host that does not run: nobody else would be told so."""
        return peer.machine == self._me.machine and state_of(peer.process) == "T"

    def gather(
        self, members: list[Peer], statement: dict[str, Any], suspects: tuple[int, ...] = ()
    ) -> tuple[list[Peer], dict[int, Any], list[Peer]]:
        """The next generation: its members, where each of them stands, and who was evicted for being late. The
        suspects among them, whom everybody has waited for already, are evicted at once."""
        self.generation += 1
        self._barriers = 0
        prefix = f"{self.generation}/"
        self._store.set(f"{prefix}here/{self._me.rank}", json.dumps(statement))
        for peer in members:
            if peer.rank in suspects and not self._is_here(peer, prefix):
                self._evict(peer)
        silent = self._await(members, prefix)
        for peer in silent:
            self._evict(peer)
        here = [peer.rank for peer in members if self._is_here(peer, prefix) and not self._is_evicted(peer)]
        decided = json.loads(self._store.agree(f"{prefix}members", json.dumps(here)))
        if self._me.rank not in decided:
            raise PeerLostError(f"{self._me} was evicted by the others, whom it kept waiting")
        statements = {rank: json.loads(self._store.wait(f"{prefix}here/{rank}", self._timeout)) for rank in decided}
        late = [peer for peer in members if self._is_evicted(peer)]
        return [peer for peer in members if peer.rank in decided], statements, late

    def tell_trouble(self, message: str) -> None:
        """This generation is over, for all, who are to come to the next one."""
        self._store.agree(f"{self.generation}/trouble", message)

    def trouble(self) -> str:
        """What somebody has told; "" if nobody has."""
        return self._store.get(f"{self.generation}/trouble") or ""

    def is_whole(self, whole: bool) -> bool:
        """Whether this generation counts, in the words of whoever was the first to know: then it does for all."""
        return self._store.agree(f"{self.generation}/whole", "yes" if whole else "no") == "yes"

    def agree_on_barrier(self, ok: bool) -> bool:
        """The same for a barrier of this generation; all count them alike."""
        self._barriers += 1
        answer = self._store.agree(f"{self.generation}/barrier/{self._barriers}", "yes" if ok else "no")
        return answer == "yes"

    def _is_here(self, peer: Peer, prefix: str) -> bool:
        return self._store.get(f"{prefix}here/{peer.rank}") is not None

    def _is_evicted(self, peer: Peer) -> bool:
        return self._marks.get(f"evicted/{peer.rank}") is not None

    def _await(self, members: list[Peer], prefix: str) -> list[Peer]:
        """Who is neither here nor gone when the time is over; nobody if somebody else has decided, whose list may name
        one that came a moment after we looked."""
        deadline = time.monotonic() + self._timeout
        waiting = list(members)
        while self._store.get(f"{prefix}members") is None:
            waiting = [peer for peer in waiting if not self._is_here(peer, prefix) and not self.is_gone(peer)]
            if not waiting or time.monotonic() > deadline:
                return waiting
            time.sleep(POLL_SECONDS)
        return []

    def _evict(self, peer: Peer) -> None:
        self._marks.set(f"evicted/{peer.rank}", self._me.to_json())
        if peer.machine == self._me.machine:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(peer.process, signal.SIGKILL)

    def missing_from(self, what: str, members: list[Peer], patience: float) -> list[Peer]:
        """Who does not answer a roll call within `patience` seconds of somebody's time-out."""
        self._store.set(f"roll/{what}/{self._me.rank}", "here")
        deadline = time.monotonic() + patience
        waiting = list(members)
        while waiting and time.monotonic() < deadline:
            waiting = [peer for peer in waiting if self._store.get(f"roll/{what}/{peer.rank}") is None]
            time.sleep(POLL_SECONDS)
        return waiting
