"""Where a job's steps and events go: a run log, TensorBoard, and whoever asked to be told."""

from __future__ import annotations

import logging
from typing import Any

from isochron._core import EventRecord, RunLog, StepRecord, UpdateRecord, Worker, WorkerStep
from isochron.torch.options import JobOptions

log = logging.getLogger("isochron")


class Trace:
    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._log: RunLog | None = None
        self._names: dict[int, str] = {}  # of workers by their ids, those that are gone included
        self._board: Any = None

    def open(
        self,
        first: bool,
        samples_per_epoch: int,
        step: int,
        workers: list[Worker],
        go_on: bool,
        last: StepRecord | None = None,
    ) -> None:
        """By the first worker, when the data is known. A log that goes on is told from which step. `last`: the last
        finished step of this job, which a first worker that was lost may not have written any more."""
        self._names |= {worker.id: worker.name for worker in workers}
        if not first:
            return
        options = self._options
        if options.log is not None and self._log is None:
            self._log = RunLog(
                options.log,
                policy=options.policy,
                global_batch=options.global_batch,
                seed=options.seed,
                samples_per_epoch=samples_per_epoch,
                model="",
                dataset="",
                sync=options.sync if options.asynchronous else "",
                workers=[(worker.id, worker.name, worker.kind) for worker in workers],
                go_on=go_on,
            )
            next_step = self._log.next_step
            if self._log.continued and last is not None and last.step == next_step:
                self._log.write(last)
                next_step += 1
            if self._log.continued and next_step != step:
                self._log.write(EventRecord(step=step, seconds=0.0, event="resume", worker=0, words=""))
        if options.tensorboard is not None and self._board is None:
            self._board = options.tensorboard
            if not hasattr(self._board, "add_scalar"):
                from torch.utils.tensorboard import SummaryWriter  # slow to import, and not always there

                self._board = SummaryWriter(str(options.tensorboard))

    def step(self, record: StepRecord) -> None:
        if record.changed:
            log.info("step %d: batches %s, %s", record.step, record.batch_sizes, record.words or record.reason)
        if self._log is not None:
            self._log.write(record)
        if self._board is not None:
            self._board.add_scalar("isochron/balance", record.balance, record.step)
            self._draw(record, record.workers)
        if self._options.on_step is not None:
            self._options.on_step(record)

    def update(self, record: UpdateRecord) -> None:
        if self._log is not None:
            self._log.write(record)
        if self._board is not None:
            self._board.add_scalar("isochron/staleness", record.staleness, record.step)
            self._draw(record, [record.worker])
        if self._options.on_step is not None:
            self._options.on_step(record)

    def _draw(self, record: StepRecord | UpdateRecord, workers: list[WorkerStep]) -> None:
        scalar = self._board.add_scalar
        samples = sum(worker.batch for worker in workers)
        scalar("isochron/step_seconds", record.seconds, record.step)
        scalar("isochron/samples_per_second", samples / max(record.seconds, 1e-9), record.step)
        if record.loss == record.loss:
            scalar("isochron/loss", record.loss, record.step)
        for worker in workers:
            name = self._names.get(worker.id, str(worker.id))
            scalar(f"isochron/batch_size/{name}", worker.batch, record.step)
            scalar(f"isochron/compute_seconds/{name}", worker.compute_seconds, record.step)

    def event(self, record: EventRecord) -> None:
        log.warning("step %d: %s of worker %d %s", record.step, record.event, record.worker, record.words)
        if self._log is not None:
            self._log.write(record)
        if self._options.on_event is not None:
            self._options.on_event(record)

    def evaluation(self, step: int, seconds: float, loss: float, accuracy: float) -> None:
        if self._log is not None:
            self._log.evaluation(step=step, seconds=seconds, loss=loss, accuracy=accuracy)
        if self._board is not None:
            self._board.add_scalar("isochron/test_accuracy", accuracy, step)

    def close(self) -> None:
        self._log = None
        if self._board is not None and self._board is not self._options.tensorboard:
            self._board.close()
        self._board = None
