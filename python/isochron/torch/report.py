"""What a worker says of a step, and what follows from all workers' words. Every worker computes the same."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field, fields

import torch

from isochron._core import Decision, Worker, mix_key
from isochron.errors import Error, NumbersError


@dataclass
class Report:
    """Numbers only: it travels as a message of fixed size."""

    batch: float = 0.0  # samples that count
    start: float = 0.0  # of the step, seconds on this worker's clock since the job began
    seconds: float = 0.0  # computing to the last own gradient, waiting excluded
    warm: float = 1.0  # 0: the device's first step with a batch of this size, whose time says nothing
    waited: float = 0.0  # within that time, for the others' shares of BatchNorm statistics
    meetings: float = 1.0  # how often it waited for all others, the end of the step included
    cpu: float = 0.0  # share of that time in which this process computed
    memory: float = 0.0  # share of the memory in use
    loss: float = 0.0  # mean over its samples, or over what count= said
    count: float = 0.0  # what the loss is a mean over: samples or count=
    decision: float = 0.0  # digest() of what this worker believes the step to be
    stop: float = 0.0  # 1: stop after this step; 1 + n: because of signal n

    def to_tensor(self) -> torch.Tensor:
        return torch.tensor(astuple(self), dtype=torch.float64)

    @staticmethod
    def from_rows(rows: torch.Tensor) -> list[Report]:
        return [Report(*row) for row in rows.tolist()]


assert all(entry.type == "float" for entry in fields(Report))


@dataclass
class WorkerStep:
    id: int
    name: str
    batch: int
    start: float
    seconds: float
    waited: float
    exchange: float


@dataclass
class StepRecord:
    """A finished step, as in the run log."""

    step: int
    epoch: int
    position: int
    start: float  # seconds since the job began
    seconds: float
    loss: float  # mean over the global batch
    learning_rate_factor: float
    changed: bool
    reason: str
    words: str
    workers: list[WorkerStep] = field(default_factory=list)
    staleness: int = -1  # asp, ssp: a step is one worker's update, and so many of others came between; -1: in step

    @property
    def batch_sizes(self) -> list[int]:
        return [worker.batch for worker in self.workers]

    @property
    def balance(self) -> float:
        """Mean over maximum of the workers' times: 1 if all were done at the same moment."""
        times = [worker.seconds for worker in self.workers]
        return sum(times) / len(times) / max(times) if times and max(times) > 0 else 1.0


@dataclass
class EventRecord:
    """Something that happened to a worker or to the job; names as in the run log."""

    step: int
    seconds: float
    event: str
    worker: int
    words: str


def digest(decision: Decision, epoch: int, position: int) -> float:
    """What all workers must believe alike, in as many bits as a double holds exactly."""
    return float(mix_key([decision.step, epoch, position, *decision.batch_sizes]) >> 11)


def check_agreement(reports: list[Report], step: int) -> None:
    for rank, report in enumerate(reports):
        if report.decision != reports[0].decision:
            raise Error(
                f"step {step}: rank {rank} does not agree with rank 0 on the step, its samples or its split; all "
                "workers must run the same program, on machines whose floating-point results agree"
            )


def make_record(
    reports: list[Report],
    workers: list[Worker],
    decision: Decision,
    place: tuple[int, int],
    finished: float,
    now: float,
) -> StepRecord:
    """`finished`: when the gradients were averaged, on this worker's clock; the step ends `now`."""
    ends = [report.start + report.seconds + report.waited for report in reports]
    counts = sum(report.count for report in reports)
    loss = sum(report.count * report.loss for report in reports if report.count > 0) / counts if counts else math.nan
    start = min(report.start for report in reports)
    record = StepRecord(
        decision.step, *place, start, now - start, loss, decision.learning_rate_factor, decision.changed,
        decision.reason, decision.words,
    )  # fmt: skip
    for worker, report, end in zip(workers, reports, ends, strict=True):
        record.workers.append(
            WorkerStep(
                worker.id,
                worker.name,
                int(report.batch),
                report.start,
                report.seconds,
                report.waited + max(ends) - end,
                max(finished - max(ends), 0.0),
            )
        )
    return record


def refuse_numbers(reports: list[Report], workers: list[Worker], step: int) -> None:
    bad = [(rank, report) for rank, report in enumerate(reports) if report.count and not math.isfinite(report.loss)]
    if bad:
        words = ", ".join(f"{workers[rank].name} (rank {rank}, loss {report.loss})" for rank, report in bad)
        raise NumbersError(f"step {step}: the loss is not finite on {words}")
