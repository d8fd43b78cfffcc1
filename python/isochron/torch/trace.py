"""Where a job's steps and events go: a run log, TensorBoard, and whoever asked to be told."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from isochron._core import RunLog, Worker
from isochron.torch.options import JobOptions
from isochron.torch.records import EventRecord, StepRecord, UpdateRecord, WorkerStep

log = logging.getLogger("isochron")


def trouble_of_writing(path: str | os.PathLike[str]) -> str:
    """Why a log cannot be written there; empty if it can."""
    there = Path(path)
    try:
        existed = there.exists()
        with open(there, "ab"):
            pass
        if not existed:
            there.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _set_aside(path: Path) -> None:
    """A log of another run stays, under the next free name."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    number = 1
    while (other := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    path.rename(other)
    log.warning("%s is of an earlier run, and is %s now", path, other)


class Trace:
    """Of one dataset of the job; `number` counts them from 0."""

    def __init__(self, options: JobOptions, number: int = 0) -> None:
        self._options = options
        self._number = number
        self._log: RunLog | None = None
        self._next_step = 0  # by what the log holds
        self._board: Any = None

    @property
    def path(self) -> Path | None:
        """run.jsonl, and of later datasets run-2.jsonl and so on."""
        if self._options.log is None:
            return None
        path = Path(self._options.log)
        return path.with_name(f"{path.stem}-{self._number + 1}{path.suffix}") if self._number > 0 else path

    def open(
        self, first: bool, samples_per_epoch: int, step: int, workers: list[Worker], go_on: bool, others: bool = False
    ) -> None:
        """By the first worker, when a loop begins. A log that goes on is told from which step; one of another run is set
        aside. `others`: there are other datasets, on which steps may have been since the log's last one."""
        if not first:
            return
        options, path = self._options, self.path
        if path is not None and self._log is None:
            if not go_on:
                _set_aside(path)
            self._log = RunLog(
                path,
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
            self._next_step = self._log.next_step
        if self._log is not None and self._next_step != step:
            self._set_step("other-data" if others and self._next_step < step else "resume", step)
        if options.tensorboard is not None and self._board is None:
            self._board = options.tensorboard
            if not hasattr(self._board, "add_scalar"):
                from torch.utils.tensorboard import SummaryWriter  # slow to import, and not always there

                self._board = SummaryWriter(str(options.tensorboard))

    def _set_step(self, event: str, step: int) -> None:
        assert self._log is not None
        self._log.event(step=step, seconds=0.0, event=event, worker=0, words="")
        self._next_step = step

    def resume(self, step: int) -> None:
        """A state of that step was loaded into a job that has begun."""
        if self._log is not None and self._next_step != step:
            self._set_step("resume", step)

    def step(self, record: StepRecord) -> None:
        self._next_step = record.step + 1
        if record.changed:
            log.info("step %d: batches %s, %s", record.step, record.batch_sizes, record.words or record.reason)
        if self._log is not None:
            self._log.step(
                step=record.step,
                epoch=record.epoch,
                position=record.position,
                start=record.start,
                seconds=record.seconds,
                workers=[_columns(one) for one in record.workers],
                learning_rate_factor=record.learning_rate_factor,
                changed=record.changed,
                reason=record.reason,
                words=record.words,
                loss=record.loss,
            )
        if self._board is not None:
            self._board.add_scalar("isochron/balance", record.balance, record.step)
            self._draw(record, record.workers)
        if self._options.on_step is not None:
            self._options.on_step(record)

    def update(self, record: UpdateRecord) -> None:
        if self._log is not None:
            self._log.update(
                step=record.step,
                epoch=record.epoch,
                position=record.position,
                seconds=record.seconds,
                worker=_columns(record.worker),
                learning_rate_factor=record.learning_rate_factor,
                changed=record.changed,
                reason=record.reason,
                words=record.words,
                loss=record.loss,
                staleness=record.staleness,
            )
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
            scalar(f"isochron/batch_size/{worker.name}", worker.batch, record.step)
            scalar(f"isochron/compute_seconds/{worker.name}", worker.seconds, record.step)

    def event(self, record: EventRecord) -> None:
        level = logging.INFO if record.event == "epoch-end" else logging.WARNING
        log.log(level, "step %d: %s of worker %d %s", record.step, record.event, record.worker, record.words)
        if self._log is not None:
            self._log.event(
                step=record.step, seconds=record.seconds, event=record.event, worker=record.worker, words=record.words
            )
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


def _columns(worker: WorkerStep) -> tuple[int, int, float, float, float, float]:
    return worker.id, worker.batch, worker.start, worker.seconds, worker.waited, worker.exchange
