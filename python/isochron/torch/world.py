"""The workers of a job as this process sees them, and what they exchange besides gradients.

Two process groups of our own lie over the default one: `gradients`, which DDP averages over, and `control`, a gloo
group on the CPU for telemetry, so that neither gets into the other's order. Gradients and BatchNorm's statistics go
over NCCL where every worker has a GPU to itself; else both go over gloo, the statistics by `control`. Where several
workers have GPUs and others none, DDP's averages go by `sides` of the job (sides.py). All groups can be given up and
made anew among those that are left; the default group cannot, and is used only at the start.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from isochron import job_key
from isochron.errors import Error, PeerError, PeerLostError, TimeoutError
from isochron.torch import inherited, words
from isochron.torch.environment import naming_who_is_missing
from isochron.torch.peers import Peer, Rendezvous, names_of
from isochron.torch.sealed import SealedStore
from isochron.torch.sides import Sides, sides_of
from isochron.torch.stopwatch import Span, Waits
from isochron.torch.nccl_watch import Watch, abort_nccl, errors_are_ours

log = logging.getLogger("isochron")

# How gloo and the store say that a peer is lost or late, in RuntimeErrors without a type of their own.
_LOST = re.compile(r"gloo[/:]|ProcessGroupGloo|connection (closed|reset) by peer|broken pipe", re.I)
_LATE = re.compile(r"timed out waiting|application timeout|wait timeout", re.I)
_jobs = 0
# Where such an error may come from besides our own exchanges: DDP reduces gradients beneath autograd's engine.
_TORCH = os.path.dirname(torch.__file__)
_ORIGINS = (os.path.dirname(__file__), *(os.path.join(_TORCH, part) for part in (
    "autograd/graph.py", "distributed/", "nn/parallel/")))  # fmt: skip
FORMING_SECONDS = 15.0  # for new groups: all who are to be in them are here, so that who is late has just been lost
MOST_FORMINGS = 20
MOST_GROUPS = 4  # that a worker makes in a generation
ROLL_CALL_SECONDS = 10.0  # others notice a time-out later than we do by as much as they were behind
LOOK_SECONDS = 1.0  # between two looks at the others, by who computes for long without an exchange, at the least
LOOK_SHARE = 0.01  # of the time that looks take at most where the store is far, but for
LOOKS_IN_TIME = 4  # in the time-out, after which who has not looked is evicted
DEATH_SECONDS = 5.0  # a process that dies closes its connections before anybody can see that it is dead

# torch 2.13 gave these new names and warns about the old ones.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def is_peer_failure(error: BaseException) -> bool:
    """What an error of the user's own code says proves nothing: it must come from torch's collectives."""
    if isinstance(error, (PeerError, dist.DistError)):
        return True
    if not isinstance(error, RuntimeError) or not _origin(error).startswith(_ORIGINS):
        return False
    return bool(_LOST.search(str(error)) or _LATE.search(str(error)))


def _origin(error: BaseException) -> str:
    """The file of the innermost Python function that it went through."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame.tb_frame.f_code.co_filename if frame is not None else ""


def reason_of(error: BaseException) -> str:
    """What it says first, without the places in gloo's sources and its advice to whoever debugs gloo."""
    message = re.sub(r"\[[^\]]*\.(cc|cpp|h):\d+\]\s*", "", str(error).partition("\n")[0])
    return re.split(r"\.? +(This may indicate|Please|GLHF)", message)[0].strip()


def _destroy(group: dist.ProcessGroup) -> None:
    if group is not dist.group.WORLD:
        with contextlib.suppress(Exception):
            aborted = dist.get_backend(group) == "nccl"  # which need not be waited for any more
            (dist.distributed_c10d._abort_process_group if aborted else dist.destroy_process_group)(group)


def _groups() -> list[dist.ProcessGroup]:
    return list(dist.distributed_c10d._world.pg_names)


def _launcher_marks(timeout: float) -> SealedStore | None:
    """Where `python -m isochron.launch` says who is dead."""
    key = job_key.find()
    if "ISOCHRON_LAUNCH" not in os.environ or key is None:
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return SealedStore(dist.TCPStore(address, port, wait_for_workers=False), key, timeout)


def _gpu(device: torch.device) -> tuple[str, bool] | None:
    """Which GPU it is, and whether workers may share it over NCCL (2.30 and later, when it is told to); None if NCCL
    cannot be used here."""
    if device.type != "cuda" or "nccl" not in str(dist.get_backend_config()).lower():
        return None
    return str(torch.cuda.get_device_properties(device).uuid), os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"


def choose_backend(gpus: list[tuple[str, bool] | None]) -> str:
    """Chooses the backend of the gradients from what all workers say of their GPUs: NCCL knows no CPUs, and refuses
    two workers on a GPU."""
    known = [gpu for gpu in gpus if gpu is not None]
    if len(known) < len(gpus):
        return "gloo"
    apart = len({name for name, _ in known}) == len(known)
    return "nccl" if apart or all(shared for _, shared in known) else "gloo"


def _introduced(said: bytes, rank: int) -> tuple[Peer, str, tuple[str, bool] | None]:
    """A worker, its part of the key, and its GPU. Raises Error."""
    told = words.unpack_words(said, f"rank {rank}")
    try:
        gpu = told["gpu"]
        return Peer(**told["me"]), str(told["secret"]), (str(gpu[0]), bool(gpu[1])) if gpu is not None else None
    except (KeyError, TypeError, IndexError) as error:
        raise Error(f"rank {rank} is of another version: it introduces itself in other words ({error!r})") from error


class World:
    """A process that is alone needs no group; every exchange is trivial then."""

    def __init__(self, timeout: float, elastic: bool | None, device: torch.device) -> None:
        global _jobs
        self._timeout = timeout
        self._device = device
        self._backend = "gloo"  # of the gradients
        self._side_of: list[str] | None = None  # by rank, where a job has two sides
        self._uses_nccl = False  # this worker or another
        self.gradients: dist.ProcessGroup | None = None
        self.control: dist.ProcessGroup | None = None
        self.sides: Sides | None = None
        self.members: list[Peer] = []
        self.me = Peer.here(0)
        self.waits = Waits(device)  # in blocking exchanges
        self._watch: Watch | None = None  # over NCCL
        self._next_look = 0.0  # at the others, between exchanges
        self.failure: BaseException | None = None  # of an exchange inside the user's code, for whoever asks later
        self.has_group = dist.is_available() and dist.is_initialized()
        if not self.has_group:
            self.members = [self.me]
            self.elastic = False
            return
        _jobs += 1
        self.me = Peer.here(dist.get_rank())
        self._marks: list[Any] = []  # groups of this worker alone
        everybody = self._introduce()
        self.elastic = elastic is not False
        self.members = [peer for peer, _ in everybody]
        key = job_key.mixed(f"{_jobs} {everybody[0][1]}")
        store = SealedStore(dist.distributed_c10d._get_default_store(), key, timeout)
        self._rendezvous = Rendezvous(store, _launcher_marks(timeout) or store, self.me, timeout)

    def _introduce(self) -> list[tuple[Peer, str]]:
        """Every worker and its part of the key: over the group, not by the store, into which anybody can write, since
        processes of these numbers may be killed. Raises PeerLostError naming who did not come."""
        size = dist.get_world_size()
        ranks = list(range(size))
        store = dist.PrefixStore(f"isochron/{_jobs}", dist.distributed_c10d._get_default_store())
        with naming_who_is_missing(store, self.me.rank, size, self._timeout):
            self.control = self._new_group("gloo", ranks, 0)
            said = {"me": asdict(self.me), "secret": job_key.make(), "gpu": _gpu(self._device)}
            told = self._exchange(words.pack_words(said), size)
            everybody = [_introduced(one, rank) for rank, one in enumerate(told)]
            gpus = [gpu for _, _, gpu in everybody]
            self._backend = choose_backend(gpus)
            self._side_of = sides_of(gpus, lambda some: choose_backend(some) == "nccl")
            self._uses_nccl = self._backend == "nccl" or (self._side_of is not None and any(gpus))
            self.gradients = self._new_group(self._backend, ranks, 0)
            self.sides = self._make_sides(ranks, 0)
        log.info("gradients go over %s", self._backend if self.sides is None else "NCCL among GPUs, gloo among CPUs")
        return [(peer, key) for peer, key, _ in everybody]

    @property
    def rank(self) -> int:
        return self.members.index(self.me)

    @property
    def size(self) -> int:
        return len(self.members)

    def _make_groups(self, ranks: list[int], generation: int) -> None:
        # torch names a later group by its members and the number of groups that there are. As many more in every
        # generation as we make keep apart those of the same members, which would find each other's old addresses.
        while len(self._marks) < MOST_GROUPS * generation:
            self._marks.append(dist.new_group([self.me.rank], backend="gloo", use_local_synchronization=True))
        known = set(_groups())
        try:
            self.control = self._new_group("gloo", ranks, generation)
            self.gradients = self._new_group(self._backend, ranks, generation)
            self.sides = self._make_sides(ranks, generation)
            if self._uses_nccl:
                # It connects at its first use, and who waits for that cannot be got out: so while all are here.
                dist.all_reduce(torch.zeros(1), group=self.control)
                within = self.sides.within if self.sides is not None else self.gradients
                if within is not None:
                    dist.all_reduce(torch.zeros(1, device=self._device), group=within)
        except BaseException:
            for group in set(_groups()) - known:  # half made, they would count in the names of later ones
                _destroy(group)
            raise
        for made in (self.control, self.gradients, *(self.sides.made if self.sides is not None else ())):
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self._timeout), made)

    def _new_group(
        self, backend: str, ranks: list[int], generation: int, by_members: bool = False
    ) -> dist.ProcessGroup:
        first = generation == 0
        timeout = timedelta(seconds=self._timeout if first else min(self._timeout, FORMING_SECONDS))
        # Only the members of a later group can be asked to take part in making it.
        alone = by_members or not first
        with errors_are_ours(), inherited.noted():
            return dist.new_group(ranks=ranks, timeout=timeout, backend=backend, use_local_synchronization=alone)

    def _make_sides(self, ranks: list[int], generation: int) -> Sides | None:
        """All workers make as many groups, by which torch names later ones: who needs none makes one of itself."""
        if self._side_of is None:
            return None
        me = self.me.rank
        mine = [rank for rank in ranks if self._side_of[rank] == self._side_of[me]]
        others = [rank for rank in ranks if rank not in mine]
        several, leads = len(mine) > 1, mine[0] == me and bool(others)
        backend = "nccl" if several and self._device.type == "cuda" else "gloo"
        within = self._new_group(backend, mine, generation, by_members=True)
        leaders = sorted((mine[0], others[0])) if leads else [me]
        across = self._new_group("gloo", leaders, generation, by_members=True)
        return Sides(len(ranks), within if several else None, across if leads else None, bool(others),
                     [within, across])  # fmt: skip

    def watch_gradients(self) -> None:
        """From now on, over NCCL, a lost worker is noticed."""
        if self._uses_nccl and self.size > 1 and self._watch is None:
            rendezvous = self._rendezvous
            self._watch = Watch(self._find_trouble, rendezvous.trouble, rendezvous.tell_trouble, self._timeout)

    def _find_trouble(self) -> str:
        gone = [peer for peer in self.members if peer != self.me and self._rendezvous.is_gone(peer)]
        return f"lost {names_of(gone)}" if gone else self._rendezvous.trouble()

    def look_after_others(self) -> None:
        """Between exchanges that lie far apart: who goes on computing would be waited for, and evicted as late. Raises
        PeerError if somebody is lost or has given up."""
        began = time.monotonic()
        if self.size == 1 or began < self._next_look:
            return
        gone = [peer for peer in self.members if self._rendezvous.has_ended(peer)]
        try:
            reason = f"lost {names_of(gone)}" if gone else self._rendezvous.trouble()
        except RuntimeError as error:
            # The store says nothing of the others any more; the next exchange need not need it.
            log.warning("nobody can be heard of before the next exchange: the workers' rendezvous is lost (%s)", error)
            self._next_look = math.inf
            return
        now = time.monotonic()
        self._next_look = now + max(LOOK_SECONDS, min((now - began) / LOOK_SHARE, self._timeout / LOOKS_IN_TIME))
        if reason:
            raise self.name_failure("a look at the others", RuntimeError(reason))

    def end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def await_gradients(self) -> None:
        """Over NCCL nothing says that a worker is lost, and an exchange without it leaves no gradient but a wrong one:
        so the GPU is waited for, and the others are asked."""
        reason = self._watch.await_gradients() if self._watch is not None else ""
        if reason:
            raise self.name_failure("the average of the gradients", RuntimeError(reason))

    def _make_groups_of_members(self) -> None:
        self._make_groups([peer.rank for peer in self.members], self._rendezvous.generation)

    def give_up(self) -> None:
        """Makes everybody else fail, too, who waits for this process in one of the groups: gloo closes its connections
        when nobody holds a group any more."""
        self.end_watch()
        if self.has_group:
            with contextlib.suppress(RuntimeError):  # the store is gone, which whoever comes together will notice
                self._rendezvous.tell_trouble("another worker gave up")  # before gradients are spoiled
        if self._uses_nccl:
            abort_nccl()
        groups = self._let_go()
        self.failure = None
        while groups:
            _destroy(groups.pop())
        gc.collect()

    def _let_go(self) -> list[dist.ProcessGroup]:
        groups = [group for group in (self.gradients, self.control) if group is not None]
        groups += self.sides.made if self.sides is not None else []
        self.gradients = self.control = self.sides = None
        return groups

    def close(self) -> None:
        """Lets go of the groups that were made for this job: their threads would stay as long as the process. Later
        ones do stay, since torch names them by how many there are, and a group of that name again would find the old
        one's addresses; so do NCCL's, over which a GPU may still have something to do."""
        self.end_watch()
        if self.has_group and self._rendezvous.generation == 0 and not self._uses_nccl and self.sides is None:
            groups = self._let_go()
            while groups:
                _destroy(groups.pop())
        if self.has_group:
            self._rendezvous.close()

    def re_form(
        self,
        stand: Callable[[], dict[str, Any]],
        settle: Callable[[dict[int, Any], list[Peer]], None],
        suspects: tuple[int, ...],
    ) -> tuple[dict[int, Any], list[Peer]]:
        """Comes together with those that are left, in groups that work; `suspects` have been waited for already.
        `settle` exchanges what is to be exchanged among those who stand as `stand` says, by rank of the default group,
        and is told who was evicted for being late. Either all go on from here or nobody does: if another one is lost
        meanwhile, it is all done again without it. Returns where each stood, and who is gone."""
        before = list(self.members)
        if not self.has_group:
            alone = {self.me.rank: stand()}
            settle(alone, [])
            return alone, []
        for _ in range(MOST_FORMINGS):
            self.members, statements, late = self._rendezvous.gather(self.members, stand(), suspects)
            whole = True
            try:
                self.guard("new groups", self._make_groups_of_members)
                settle(statements, late)
                self.barrier()  # who gets through it knows that all have settled
            except PeerError as error:
                log.warning("%s", error)
                whole = False
            if self._rendezvous.is_whole(whole):
                return statements, [peer for peer in before if peer not in self.members]
            self.give_up()
        raise PeerLostError(f"{names_of(self.members)} could not connect in {MOST_FORMINGS} attempts")

    def agree_on_barrier(self, ok: bool) -> bool:
        """Whether the barrier counts that this worker has got through, or not: the same on all that are left."""
        if not self.elastic or not self.has_group:
            return ok
        return self._rendezvous.agree_on_barrier(ok)

    # Exchanges. All are collective; all raise PeerError naming who is lost or late.

    def barrier(self) -> None:
        self.sum([0.0])

    def sum(self, values: list[float]) -> list[float]:
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        self._run("a sum", lambda: dist.all_reduce(total, group=self.control))
        return total.tolist()

    def reduce(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over the workers of a tensor where where_exchanged() puts it, in place."""
        if self.size > 1:
            self._run("a sum of statistics", lambda: dist.all_reduce(values, group=self._group_for(values)))
        return values

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Such a tensor of every worker, one a row."""
        if self.size == 1:
            return values.unsqueeze(0)
        rows = values.new_empty((self.size, *values.shape))
        if values.is_cuda:
            self._run("statistics", lambda: all_gather_single(rows, values.unsqueeze(0), group=self.gradients))
        else:
            self._run("statistics", lambda: self._send_to_all(rows, values))
        return rows

    def _send_to_all(self, rows: torch.Tensor, values: torch.Tensor, async_op: bool = False) -> Any:
        """A small all-gather that takes one hop. gloo's own goes round a ring, where a worker that is throttled, or has
        no time just now, holds up what it only passes on."""
        copies = values.expand(self.size, *values.shape).contiguous()
        return dist.all_to_all_single(rows, copies, group=self.control, async_op=async_op)

    def where_exchanged(self, values: torch.Tensor) -> torch.Tensor:
        """On the GPU if statistics go over NCCL, else on the CPU."""
        return values if self._backend == "nccl" else values.cpu()

    def _group_for(self, values: torch.Tensor) -> dist.ProcessGroup | None:
        return self.gradients if values.is_cuda else self.control

    def gather_words(self, value: Any) -> list[Any]:
        """What everybody says, as JSON has it; also of a worker that is alone."""
        every = self.gather_bytes(words.pack_words(value))
        return [words.unpack_words(one, peer) for one, peer in zip(every, self.members, strict=True)]

    def gather_states(self, value: Any) -> list[Any]:
        """As broadcast_state()."""
        every = self.gather_bytes(words.pack_state(value))
        return [words.unpack_state(one, peer) for one, peer in zip(every, self.members, strict=True)]

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        if self.size == 1:
            return [mine]
        every: list[bytes] = []
        self._run("words", lambda: every.extend(self._exchange(mine, self.size)))
        return every

    def _exchange(self, mine: bytes, size: int) -> list[bytes]:
        sizes = torch.empty(size, 1, dtype=torch.int64)
        dist.all_gather(list(sizes), torch.tensor([len(mine)]), group=self.control)
        most = int(sizes.max())
        if not 0 <= int(sizes.min()) <= most <= words.MOST_WORDS:
            raise Error(f"workers have {sizes.flatten().tolist()} bytes to say; permitted: up to {words.MOST_WORDS}")
        padded = torch.frombuffer(bytearray(mine.ljust(most or 1)), dtype=torch.uint8)
        rows = torch.empty(size, len(padded), dtype=torch.uint8)
        dist.all_gather(list(rows), padded, group=self.control)
        return [row[:length].numpy().tobytes() for row, length in zip(rows, sizes.flatten().tolist(), strict=True)]

    def broadcast_words(self, value: Any, source: int) -> Any:
        """The words of the worker whose rank is `source`; the others' do not count."""
        return words.unpack_words(self.broadcast_bytes(words.pack_words(value), source), self.members[source])

    def broadcast_state(self, value: Any, source: int) -> Any:
        """Such a worker's tensors and what else a state holds, on the CPU, however large. Raises Error on all workers
        if it is more than can be read without running it (words.py)."""
        data = words.pack_state(value) if self.rank == source else b""
        return words.unpack_state(self.broadcast_bytes(data, source), self.members[source])

    def broadcast_bytes(self, data: bytes, source: int) -> bytes:
        if self.size == 1:
            return data
        leads = self.rank == source
        size = int(self.sum([float(len(data)) if leads else 0.0])[0])
        buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8) if leads else torch.empty(size, dtype=torch.uint8)
        self._run("a state", lambda: dist.broadcast(buffer, group=self.control, group_src=source))
        return buffer.numpy().tobytes()

    def start_gather(self, values: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Begins to gather a CPU tensor; what it returns waits for the rows."""
        if self.size == 1:
            return lambda: values.unsqueeze(0)
        rows = values.new_empty((self.size, *values.shape))
        work = self.guard("telemetry", lambda: self._send_to_all(rows, values, async_op=True))

        def wait() -> torch.Tensor:
            self.guard("telemetry", work.wait)
            return rows

        return wait

    def take_waits(self) -> list[Span]:
        """In blocking exchanges since the last call."""
        return self.waits.take()

    def _run(self, what: str, exchange: Callable[[], Any]) -> None:
        with self.waits.counted():
            self.guard(what, exchange)

    def guard(self, what: str, exchange: Callable[[], Any]) -> Any:
        try:
            return exchange()
        except PeerError:
            raise
        except RuntimeError as error:  # whatever it says: it is an exchange with the others that failed
            raise self.name_failure(what, error) from error

    def name_failure(self, what: str, error: BaseException) -> PeerError:
        """The error that says who is lost or late, for one that gloo words in its own way."""
        if isinstance(error, PeerError):
            return error
        others = [peer for peer in self.members if peer != self.me]
        try:
            gone = self._rendezvous.find_gone(others, 0.0 if _LATE.search(str(error)) else DEATH_SECONDS)
            late: list[Peer] = []
            if not gone and _LATE.search(str(error)):
                question = f"{self._rendezvous.generation}"
                late = self._rendezvous.missing_from(question, others, patience=min(self._timeout, ROLL_CALL_SECONDS))
        except Exception as trouble:  # the store is gone, and with it the worker or launcher that held it
            message = f"{what}: the workers' rendezvous, at {self.members[0]} or its launcher, is lost ({trouble})"
            return PeerLostError(message, [self.members[0].rank], [self.members[0].host])
        if late:
            message = f"{what} timed out after {self._timeout:g} s, waiting for {names_of(late)}"
            return TimeoutError(message, [peer.rank for peer in late], [peer.host for peer in late])
        if gone:
            message = f"{what}: lost {names_of(gone)}"
            return PeerLostError(message, [peer.rank for peer in gone], [peer.host for peer in gone])
        stopped = [peer for peer in others if self._rendezvous.is_stopped(peer)]
        message = f"{what}: another worker gave up" + (f" while {names_of(stopped)} is stopped" if stopped else "")
        message += f" ({reason_of(error)})"
        return PeerLostError(message, [peer.rank for peer in stopped], [peer.host for peer in stopped])

    @contextlib.contextmanager
    def kept_failure(self) -> Iterator[None]:
        """Keeps a failure inside the user's code for later, when the job can deal with it."""
        try:
            yield
        except PeerError as error:
            self.failure = self.failure or error
