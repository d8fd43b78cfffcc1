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
        """`workers` have the names; who took the step may be gone since."""
        names = {worker.id: worker.name for worker in workers}
        steps = [
            WorkerStep(one.id, names.get(one.id, ""), one.batch, one.start_seconds, one.compute_seconds,
                       one.wait_seconds, one.exchange_seconds)
            for one in record.workers
        ]  # fmt: skip
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


@dataclass
class EventRecord:
    """Something that happened to a worker or to the job; names as in the run log."""

    step: int
    seconds: float
    event: str
    worker: int
    words: str
