"""Where a job stands: the replicated controller, the place in the data, the ledger and the run log.

Every worker holds one, tells it the same and is told the same; no clock but the caller's, no framework. One step:
  a) take() says which samples are this worker's, by the controller's split of the global batch;
  b) every worker fills in a Report; the caller brings them round;
  c) complete() checks that all did the same step, notes the samples and lets the controller decide on the next one;
     refuse() does it for a step that did not happen because somebody's memory did not hold his share.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from isochron import _core
from isochron.served.messages import Update

_DIGEST_PIECES = 3
_PIECE = 1 << 16  # a single-precision number holds it exactly


@dataclasses.dataclass
class Report:
    """What a worker says of its step. It travels in single precision, whole numbers up to 2^24 exactly."""

    batch: float = 0.0
    start: float = 0.0  # whole seconds on its own clock since the job began
    start_fraction: float = 0.0  # what is left of a second
    seconds: float = 0.0  # computing to the last local gradient, waiting excluded
    waited: float = 0.0  # within that time, for the others' shares of BatchNormalization's statistics
    cpu: float = 0.0  # share of that time in which this process computed, 0..1
    memory: float = 0.0  # share of the machine's memory that it holds, 0..1
    loss: float = 0.0  # mean over its samples
    out_of_memory: float = 0.0  # 1: it did not hold the batch
    stop: float = 0.0  # 1: stop after this step
    warm: float = 1.0  # 0: its time says nothing, since something was compiled in it
    digest_0: float = 0.0  # of what this worker believes the step to be
    digest_1: float = 0.0
    digest_2: float = 0.0

    def began_at(self, seconds: float) -> None:
        self.start, self.start_fraction = math.floor(seconds), seconds - math.floor(seconds)

    @property
    def began(self) -> float:
        return self.start + self.start_fraction

    @property
    def ended(self) -> float:
        return self.began + self.seconds + self.waited

    def row(self) -> np.ndarray:
        return np.array(dataclasses.astuple(self), np.float32)


REPORT_LENGTH = len(dataclasses.fields(Report))


def read_reports(rows: np.ndarray) -> list[Report]:
    return [Report(*map(float, row)) for row in rows]


@dataclasses.dataclass(frozen=True)
class Rules:
    """What all workers share."""

    global_batch: int
    policy: str
    seed: int
    last_batch: str
    rate: str
    reference_batch: int
    warmup_steps: float

    def controller(self, workers: Sequence[_core.Worker]) -> _core.Controller:
        return _core.Controller(
            list(workers), self.global_batch, policy=self.policy, rate=self.rate,
            reference_batch=self.reference_batch, warmup_steps=self.warmup_steps)  # fmt: skip


class Progress:
    def __init__(self, rules: Rules, workers: Sequence[dict[str, Any]], rank: int) -> None:
        """`workers` in their order, each as the arguments of _core.Worker less the id."""
        self.rules, self.rank = rules, rank
        self._described = [dict(worker) for worker in workers]
        self._ids = list(range(len(workers)))
        self._next_id = len(workers)
        self._ceilings = _core.MemoryCeilings()
        self._controller = rules.controller(self._workers())
        self._sampler: _core.Sampler | None = None
        self._ledger: _core.Ledger | None = None
        self._place: dict[str, Any] | None = None  # restored, until the size of the dataset is known
        self._slices: list[tuple[int, int]] = []
        self._step_size = 0
        self.log: _core.RunLog | None = None
        # Of a job whose workers are not in step:
        self.updates: int | None = None  # lines of the log so far; None: one for each step
        self.shard_steps = 0  # of the shards' optimizers

    def _workers(self) -> list[_core.Worker]:
        workers = []
        for identity, described in zip(self._ids, self._described, strict=True):
            most = self._ceilings.limit(identity, described["min_batch"], described["max_batch"])
            workers.append(_core.Worker(identity, **{**described, "max_batch": most}))
        return workers

    @property
    def decision(self) -> _core.Decision:
        return self._controller.decision

    @property
    def step(self) -> int:
        return self._controller.decision.step

    @property
    def epoch(self) -> int:
        return self._sampler.epoch if self._sampler else self._place["epoch"] if self._place else 0

    @property
    def position(self) -> int:
        return self._sampler.position if self._sampler else self._place["position"] if self._place else 0

    @property
    def sampler(self) -> _core.Sampler:
        if self._sampler is None:
            raise RuntimeError("the job has no dataset yet")
        return self._sampler

    @property
    def ledger(self) -> _core.Ledger:
        self.sampler  # says what is missing
        assert self._ledger is not None
        return self._ledger

    @property
    def step_size(self) -> int:
        """Samples of the step under way on all workers: B, or fewer at the end of an epoch."""
        return self._step_size

    @property
    def batch(self) -> int:
        """This worker's."""
        first, last = self._slices[self.rank]
        return last - first

    def open(self, dataset_size: int) -> None:
        rules = self.rules
        if self._sampler is not None:
            if self._dataset_size != dataset_size:
                raise ValueError(
                    f"a dataset of {dataset_size} samples; permitted: the job's first one, of {self._dataset_size}"
                )
            return
        self._dataset_size: int = dataset_size
        self._sampler = _core.Sampler(dataset_size, rules.global_batch, rules.seed, rules.last_batch)
        self._ledger = _core.Ledger(self._sampler.samples_per_epoch)
        self._go_to_place()

    def _go_to_place(self) -> None:
        if self._place is None or self._sampler is None:
            return
        _refuse_difference("the dataset's size", self._place["dataset_size"], self._dataset_size)
        self._sampler.seek(self._place["epoch"], self._place["position"])
        self._ledger = _core.Ledger(self._sampler.samples_per_epoch)
        self._ledger.restore(self._place["ledger"].encode())
        self._place = None

    def take(self) -> tuple[int, int]:
        """The positions of the epoch's permutation that are this worker's in the coming step."""
        self._slices = self.sampler.slices(self.decision.batch_sizes)
        self._step_size = self.sampler.step_size
        return self._slices[self.rank]

    def sign(self, report: Report) -> None:
        """Fills in the batch and what all must agree on."""
        report.batch = self.batch
        sizes = self.decision.batch_sizes
        key = _core.mix_key([self.step, self.sampler.epoch, self.sampler.position, *sizes])
        report.digest_0, report.digest_1, report.digest_2 = (
            float(key >> (16 * piece) & (_PIECE - 1)) for piece in range(_DIGEST_PIECES))  # fmt: skip

    def check_agreement(self, reports: Sequence[Report]) -> None:
        for rank, report in enumerate(reports):
            theirs = (report.digest_0, report.digest_1, report.digest_2)
            if theirs != (reports[0].digest_0, reports[0].digest_1, reports[0].digest_2):
                raise _core.Error(
                    f"step {self.step}: task {rank} does not agree with task 0 on the step, its samples or its split; "
                    "all workers must run the same program, on machines whose floating-point results agree"
                )

    def complete(self, reports: Sequence[Report], reduced: float, now: float) -> float:
        """The step is done; its mean loss over the global batch. `reduced`: when the gradients were added up."""
        loss = mean_loss(reports)
        self._write(reports, loss, reduced, now)
        self._note_samples()
        self._controller.observe(
            self.step, self._ids, [int(report.batch) for report in reports],
            [report.seconds if report.warm else math.nan for report in reports], [report.cpu for report in reports],
            [report.memory for report in reports])  # fmt: skip
        if self._ceilings.raise_due(self.step, self.rules.global_batch):
            self._controller.change_workers(self._workers())
        return loss

    def refuse(self, reports: Sequence[Report], now: float) -> list[int]:
        """Lowers the ceilings of those whose memory did not hold their batch, and says who they are. The split for the
        same step is decided anew; ValueError if the workers together have not enough room for it."""
        failed = [rank for rank, report in enumerate(reports) if report.out_of_memory]
        for rank in failed:
            batch = int(reports[rank].batch)
            self._ceilings.failed(self._ids[rank], batch, self.step)
            if self.log is not None:
                words = f"memory did not hold {batch} samples"
                self.log.event(step=self.step, seconds=now, event="out-of-memory", worker=self._ids[rank], words=words)
        try:
            self._controller.change_workers(self._workers())
        except ValueError:
            if not self._ceilings.give_up(self.step):
                raise
            self._controller.change_workers(self._workers())
        return failed

    def set_bounds(self, bounds: Sequence[tuple[int, int]]) -> None:
        """Smallest and largest batch of every worker, between two steps. ValueError, changing nothing, if they cannot
        hold the global batch."""
        before = self._described
        self._described = [
            {**worker, "min_batch": least, "max_batch": most}
            for worker, (least, most) in zip(before, bounds, strict=True)
        ]
        try:
            self._controller.change_workers(self._workers())
        except ValueError:
            self._described = before
            raise

    def _note_samples(self) -> None:
        if self.sampler.position == 0:
            self._ledger = _core.Ledger(self.sampler.samples_per_epoch)
        for identity, (first, last) in zip(self._ids, self._slices, strict=True):
            self.ledger.stage(first, last, identity)
        self.ledger.commit()
        self.sampler.advance()
        if self.sampler.position == 0 and not self.ledger.complete:
            raise _core.InvariantError("an epoch used some sample twice or not at all")

    def _write(self, reports: Sequence[Report], loss: float, reduced: float, now: float) -> None:
        if self.log is None:
            return
        decision = self.decision
        start = min(report.began for report in reports)
        last = max(report.ended for report in reports)
        exchange = max(reduced - last, 0.0)
        shares = [
            (identity, int(report.batch), report.began, report.seconds, report.waited + last - report.ended, exchange)
            for identity, report in zip(self._ids, reports, strict=True)
        ]
        self.log.step(
            step=decision.step, epoch=self.sampler.epoch, position=self.sampler.position, start=start,
            seconds=now - start, workers=shares, learning_rate_factor=decision.learning_rate_factor,
            changed=decision.changed, reason=decision.reason, words=decision.words, loss=loss)  # fmt: skip

    def start_log(self, path: str, model: str, dataset: str, go_on: bool, now: float, sync: str) -> None:
        members = [(identity, worker["name"], worker["kind"])
                   for identity, worker in zip(self._ids, self._described, strict=True)]  # fmt: skip
        self.log = _core.RunLog(
            path, program="tensorflow", policy=self.rules.policy, global_batch=self.rules.global_batch,
            seed=self.rules.seed, samples_per_epoch=self.sampler.samples_per_epoch, model=model, dataset=dataset,
            sync=sync, workers=members, go_on=go_on)  # fmt: skip
        if self.log.continued:
            line = self.step if self.updates is None else self.updates
            self.log.event(step=line, seconds=now, event="resume", worker=0, words="")

    # A job whose workers are not in step (async_job.py) learns from the desk what became of its samples.

    @property
    def workers(self) -> list[_core.Worker]:
        return self._controller.workers

    @property
    def learned(self) -> bytes:
        """By the policy."""
        return self._controller.state()

    def use_ledger(self, ledger: _core.Ledger) -> None:
        self._ledger = ledger

    def note_update(self, update: Update) -> None:
        self.updates = update.number + 1
        if self.log is None:
            return
        share = (update.worker, update.batch, update.start, update.compute_seconds, update.waited,
                 update.exchange_seconds)  # fmt: skip
        self.log.step(
            step=update.number, epoch=update.epoch, position=update.position, start=update.start,
            seconds=update.seconds, workers=[share], learning_rate_factor=update.rate_factor, changed=update.changed,
            reason=update.reason, words=update.words, loss=update.loss, staleness=update.staleness)  # fmt: skip

    def arrive(self, epoch: int, position: int, learned: bytes) -> None:
        """All workers are there, and know the same."""
        self._controller.restore(learned)
        self.sampler.seek(epoch, position)

    def state(self) -> str:
        """Everything learned and the place in the data, as text. Between two steps."""
        place = self._place or {
            "epoch": self.epoch, "position": self.position,
            "dataset_size": self._dataset_size if self._sampler else 0,
            "ledger": self._ledger.state().decode() if self._ledger else ""}  # fmt: skip
        return json.dumps({
            "rules": dataclasses.asdict(self.rules), "workers": self._described, "ids": self._ids,
            "next_id": self._next_id, "limits": [worker.max_batch for worker in self._controller.workers],
            "place": place, "controller": self._controller.state().decode(),
            "updates": self.updates, "shard_steps": self.shard_steps,
            "ceilings": self._ceilings.state().decode()})  # fmt: skip

    def restore(self, text: str) -> None:
        """On any number of workers, between two steps."""
        saved = json.loads(text)
        for name in ("global_batch", "seed", "last_batch", "policy"):
            _refuse_difference(name, saved["rules"][name], getattr(self.rules, name))
        self._next_id = saved["next_id"]
        known = saved["ids"]
        for k in range(len(self._ids)):
            self._ids[k] = known[k] if k < len(known) else self._new_id()
        self._ceilings.restore(saved["ceilings"].encode())
        then = [_core.Worker(identity, **{**worker, "max_batch": limit}) for identity, worker, limit
                in zip(known, saved["workers"], saved["limits"], strict=True)]  # fmt: skip
        controller = self.rules.controller(then)
        controller.restore(saved["controller"].encode())
        if self._ids != known or self._described != saved["workers"]:
            controller.change_workers(self._workers())
        self._controller = controller
        self.shard_steps = saved.get("shard_steps", 0)
        if self.updates is not None:
            self.updates = saved.get("updates") or self.step
        self._place = saved["place"] if saved["place"]["dataset_size"] else None
        self._go_to_place()

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1


def mean_loss(reports: Sequence[Report]) -> float:
    """Over the global batch. A worker without samples has no loss."""
    samples = sum(report.batch for report in reports)
    return sum(report.batch * report.loss for report in reports if report.batch) / samples


def _refuse_difference(what: str, saved: Any, given: Any) -> None:
    if saved != given:
        raise ValueError(f"{what} is {given}; permitted: that of the checkpoint, {saved}")
