"""Finished steps and events, as a loop and the run log see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from isochron import _core


@dataclass
class WorkerStep:
    id: int
    name: str
    batch: int
    start: float
    seconds: float
    waited: float
    exchange: float

    @staticmethod
    def of(step: _core.WorkerStep, workers: list[_core.Worker]) -> WorkerStep:
        """`workers` have the names; who took the step may be gone since."""
        name = next((worker.name for worker in workers if worker.id == step.id), "")
        return WorkerStep(
            step.id, name, step.batch, step.start_seconds, step.compute_seconds, step.wait_seconds,
            step.exchange_seconds,
        )  # fmt: skip


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

    @staticmethod
    def of(record: _core.StepRecord, workers: list[_core.Worker]) -> StepRecord:
        """`workers` have the names."""
        steps = [WorkerStep.of(one, workers) for one in record.workers]
        return StepRecord(
            record.step, record.epoch, record.position, record.start_seconds, record.seconds, record.loss,
            record.learning_rate_factor, record.changed, record.reason, record.words, steps,
        )  # fmt: skip

    @property
    def batch_sizes(self) -> list[int]:
        return [worker.batch for worker in self.workers]

    @property
    def balance(self) -> float:
        """Mean over longest time of the workers that computed: 1 if all were done at the same moment."""
        return _core.balance(self.batch_sizes, [worker.seconds for worker in self.workers])


@dataclass
class UpdateRecord:
    """What one worker of an asynchronous run added to the model, as in the run log."""

    step: int  # its number among the updates of all workers
    epoch: int
    position: int
    seconds: float
    loss: float  # mean over its batch
    learning_rate_factor: float
    changed: bool
    reason: str
    words: str
    worker: WorkerStep
    staleness: int  # updates of others between its pull and its push

    @staticmethod
    def of(record: _core.UpdateRecord, workers: list[_core.Worker]) -> UpdateRecord:
        """`workers` have the names."""
        return UpdateRecord(
            record.step, record.epoch, record.position, record.seconds, record.loss, record.learning_rate_factor,
            record.changed, record.reason, record.words, WorkerStep.of(record.worker, workers), record.staleness,
        )  # fmt: skip


@dataclass
class EventRecord:
    """Something that happened to a worker or to the job; names as in the run log."""

    step: int
    seconds: float
    event: str
    worker: int
    words: str
