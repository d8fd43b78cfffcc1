"""What happens when a step fails: a worker that died or kept the others waiting, or memory that ran out.

  a) Whoever notices gives up its groups, so that all others fail too. A step that the optimizer has not taken is
     undone: gradients are dropped, running statistics are as before it.
  b) Those that are left come to a rendezvous (peers.py) and make new groups.
  c) Who is behind gets models, optimizers and the replica's state from one who is not; within a step, who has taken
     fewer of several optimizers' steps gets models and optimizers. Who is lost during b) or c) has them done again
     without it, by all.
  d) Each adopts the settlement, which deals B anew, and skips the samples at which the dataset failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from isochron import _core
from isochron.errors import Error, PeerError, PeerLostError, SampleError, TimeoutError
from isochron.torch.memory import release_cached_memory
from isochron.torch.optimizer_steps import OptimizerSteps
from isochron.torch.peers import Peer
from isochron.torch.state import Prepared
from isochron.torch.world import World

log = logging.getLogger("isochron")

MOST_ATTEMPTS = 5  # at a step that fails again and again though nobody is lost


@dataclass
class Recovery:
    """The functions are the job's own."""

    world: World
    replica: _core.Replica
    prepared: Prepared
    optimizer_steps: OptimizerSteps
    now: Callable[[], float]
    undo: Callable[[], None]  # the step under way, and those before it whose gradients are still accumulating
    note: Callable[[_core.StepRecord], None]  # a finished step
    adopt: Callable[[list[_core.EventRecord]], None]  # takes what happened to the workers

    bad_sample: SampleError | None = None  # of this worker's share
    out_of_memory: bool = False
    attempts: int = 0  # at the step under way that failed though nobody was lost
    saves: int = 0  # that this worker has begun
    settled_saves: int = 0  # up to this number they are not exchanged about any more, since somebody was lost
    questions: int = 0  # that this worker has put to all, or is putting
    own_answers: tuple[bool, bool] = (False, False)  # to the last one but one, and to the last
    _statements: list[dict[str, Any]] = field(default_factory=list)  # of those who came together last

    @property
    def is_possible(self) -> bool:
        return self.world.elastic and self.prepared.models.can_be_rebuilt

    def recover(self, error: BaseException, taken: bool) -> list[SampleError]:
        """Collective among those that are left. `taken`: the optimizer has taken the step, whose reports are missing.
        Returns the samples at which the dataset failed. Raises PeerError naming the lost if the job cannot go on
        without them."""
        suspects: tuple[int, ...] = ()
        if not self.out_of_memory and self.bad_sample is None:
            named = self.world.name_failure(f"step {self.replica.step}", error)
            if not self.is_possible or self.attempts >= MOST_ATTEMPTS:
                raise named from error
            log.warning("%s", named)
            suspects = named.ranks if isinstance(named, TimeoutError) else ()
        if not taken:
            self.undo()
        _forget_frames(error)
        bad: dict[tuple[int, int], SampleError] = {}
        while True:
            self.prepared.models.let_go()
            self.world.give_up()
            if self.out_of_memory:
                release_cached_memory()
            for one in self.come_together(suspects):
                epoch, position = one.place
                bad[epoch, position] = one
            try:
                self.world.guard("rebuilding the model", self.prepared.models.take_up)
            except PeerError as another:
                if self.attempts >= MOST_ATTEMPTS:
                    raise
                log.warning("%s", another)
                continue
            self.world.take_waits()
            return list(bad.values())

    def come_together(self, suspects: tuple[int, ...]) -> list[SampleError]:
        before = list(self.world.members)
        settlement: _core.Settlement | None = None

        def settle(statements: dict[int, Any], late: list[Peer]) -> None:
            nonlocal settlement
            for peer in late:
                self.replica.note_eviction(before.index(peer))
            reports = [_progress_in(statements.get(peer.rank), peer) for peer in self.world.members]
            reports[self.world.rank] = self.replica.progress(self.now())  # it knows who was evicted meanwhile
            settlement = _core.settle(reports)
            self._catch_up(settlement, [statements[peer.rank]["steps"] for peer in self.world.members])

        statements, lost = self.world.re_form(self._statement, settle, suspects)
        assert settlement is not None
        self._statements = list(statements.values())
        self.settled_saves = max(statement["saves"] for statement in self._statements)
        bad = [SampleError(**statement["bad"]) for statement in statements.values() if statement["bad"]]
        self.attempts = 0 if lost or settlement.out_of_memory or bad else self.attempts + 1
        self.out_of_memory, self.bad_sample = False, None
        chunk_size = self.replica.chunk_size
        try:
            events = self.replica.adopt(settlement, self.world.rank, self.now())
        except Error as error:
            if not lost:
                raise
            raise PeerLostError(str(error)) from error
        if self.replica.chunk_size != chunk_size:
            log.warning("computes micro-batches of %d samples from now on", self.replica.chunk_size)
        self.adopt(events)
        return bad

    def _statement(self) -> dict[str, Any]:
        bad = self.bad_sample
        told = {"message": str(bad), "sample": bad.sample, "place": bad.place} if bad is not None else None
        return {
            "progress": self.replica.progress(self.now()).encode(),
            "bad": told,
            "steps": self.optimizer_steps.taken,
            "saves": self.saves,
            "questions": self.questions,
            "answers": self.own_answers,
        }

    def ask(self, mine: bool) -> None:
        """A question to all begins."""
        self.questions += 1
        self.own_answers = self.own_answers[1], mine

    def answers(self) -> list[bool] | None:
        """What all answered to the question under way, as told when the workers came together: some may have gone on
        since. None: somebody is still to come to it."""
        ahead = [statement["questions"] - self.questions for statement in self._statements]  # nobody by more than one
        if min(ahead) < 0:
            return None
        return [statement["answers"][-1 - by] for statement, by in zip(self._statements, ahead)]

    def _catch_up(self, settlement: _core.Settlement, steps: list[int]) -> None:
        """May be done again, from wherever it was left. `steps`: how many of the optimizers' within the step under way
        the parameters have, by rank."""
        record = self.replica.finish_unreported(settlement, self.now())
        if record is not None:
            self.note(record)
        there = [rank for rank in range(self.world.size) if rank not in settlement.behind]
        source = max(there, key=lambda rank: (steps[rank], rank == settlement.leader))
        fewer = [rank for rank in there if steps[rank] < steps[source]]
        if settlement.behind or fewer:
            models = self.prepared.models
            sends = self.world.rank == source
            mine = (self.prepared.pack(), models.between, self.replica.state()) if sends else None
            packed, between, state = self.world.broadcast_state(mine, source)
            if self.world.rank in settlement.behind or self.world.rank in fewer:
                self.prepared.unpack(packed)
                models.between = between
            if self.world.rank in settlement.behind:
                self.replica.take_over(state)
                if self.replica.last_step is not None:
                    self.note(self.replica.last_step)
        self.optimizer_steps.begin_again(steps[source])


def _progress_in(statement: Any, peer: Peer) -> _core.ProgressReport:
    """Raises Error naming the worker if the whole statement is not one; so do all others, who have read the same."""
    try:
        bad, answers = statement["bad"], statement["answers"]
        counts = [statement["saves"], statement["steps"], statement["questions"]]
        if bad is not None:
            counts += [bad["sample"], *bad["place"]]
            if set(bad) != {"message", "sample", "place"} or not isinstance(bad["message"], str):
                raise ValueError("no sample that failed")
        if not all(type(count) is int and abs(count) < 1 << 62 for count in counts):
            raise ValueError("no counts")
        if [type(answer) for answer in answers] != [bool, bool] or len(counts) not in (3, 6):
            raise ValueError("no answers to the last two questions")
        return _core.ProgressReport.decode(statement["progress"])
    except (KeyError, TypeError, ValueError) as error:
        words = f"{type(error).__name__}: {error}"
        raise Error(f"{peer} said where it stands in words that cannot be read ({words})") from error


def _forget_frames(error: BaseException | None) -> None:
    """They hold exchanges under way, and with them the group, and the tensors that were too much for the memory."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
