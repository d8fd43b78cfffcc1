"""Where a job's steps and events go: a run log, TensorBoard, and whoever asked to be told."""

from __future__ import annotations

import collections
import functools
import logging
from pathlib import Path
from typing import Any

from isochron._core import Event, EventRecord, RunLog, StepRecord, UpdateRecord, Worker, WorkerStep
from isochron.log_files import begin, numbered
from isochron.torch.options import JobOptions

log = logging.getLogger("isochron")

RECENT = 4096  # records: as many as a writer keeps while its disk is full, which are lost with it


class Trace:
    """The trace of one dataset of the job; `number` counts them from 0."""

    def __init__(self, options: JobOptions, number: int = 0) -> None:
        self._options = options
        self._number = number
        self._log: RunLog | None = None
        self._has_begun = False  # the log, whether that went well or not
        self._names: dict[int, str] = {}  # of workers by their ids, those that are gone included
        self._next_step = 0  # by what the log holds
        # Where this writes no log: what its writer may not have written, by step.
        self._recent: collections.deque[StepRecord | UpdateRecord] = collections.deque(maxlen=RECENT)
        self._board: Any = None

    @property
    def path(self) -> Path | None:
        """run.jsonl, and of later datasets run-2.jsonl and so on."""
        if self._options.log is None:
            return None
        return numbered(self._options.log, self._number)

    def open(
        self,
        first: bool,
        samples_per_epoch: int,
        step: int,
        workers: list[Worker],
        go_on: bool,
        others: bool = False,
        beside: bool = False,
    ) -> None:
        """By the first worker, when a loop begins. A log that goes on is told from which step; one of another run is
        set aside; without one that cannot be written training goes on. `others`: there are other datasets, on which
        steps may have been since the log's last one. `beside`: its steps go along with theirs."""
        self._names |= {worker.id: worker.name for worker in workers}
        if not first:
            return
        options, path = self._options, self.path
        if path is not None and not self._has_begun:
            self._has_begun = True
            what = path, "torch", options.settings, workers, samples_per_epoch
            self._log = begin(functools.partial(RunLog, *what, warn=log.warning, go_on=go_on, beside=beside))
            if self._log is not None:
                self._next_step = self._log.next_step
                if self._log.continued:
                    self._write_recent()
                self._recent.clear()
        if self._log is not None and self._next_step != step:
            self._set_step(Event.OTHER_DATA if others and self._next_step < step else Event.RESUME, step)
        if options.tensorboard is not None and self._board is None and not beside:
            self._board = options.tensorboard
            if not hasattr(self._board, "add_scalar"):
                from torch.utils.tensorboard import SummaryWriter  # slow to import, and not always there

                self._board = SummaryWriter(str(options.tensorboard))

    def _write_recent(self) -> None:
        """What a first worker that was lost has not written any more."""
        assert self._log is not None
        if self._recent and self._recent[0].step > self._next_step:
            self._next_step = self._recent[0].step
            self._log.note_gap(self._next_step)
        for record in self._recent:
            if record.step == self._next_step:
                self._log.write(record)
                self._next_step += 1

    def _forget_from(self, step: int) -> None:
        """The job is at that step again."""
        while self._recent and self._recent[-1].step >= step:
            self._recent.pop()

    def _set_step(self, event: str, step: int) -> None:
        assert self._log is not None
        self._log.write(EventRecord(step=step, seconds=0.0, event=event, worker=0, words=""))
        self._next_step = step

    def resume(self, step: int) -> None:
        """A state of that step was loaded into a job that has begun."""
        if self._log is not None and self._next_step != step:
            self._set_step(Event.RESUME, step)

    def step(self, record: StepRecord) -> None:
        if record.changed:
            log.info("step %d: batches %s, %s", record.step, record.batch_sizes, record.words or record.reason)
        self._write(record)
        if self._board is not None:
            self._draw(record, record.workers, "balance", record.balance)
            samples = sum(record.batch_sizes)
            self._board.add_scalar("isochron/samples_per_second", samples / max(record.seconds, 1e-9), record.step)

    def update(self, record: UpdateRecord, samples_per_second: float) -> None:
        """With the rate of all workers, as far as updates tell."""
        self._write(record)
        if self._board is not None:
            self._draw(record, [record.worker], "staleness", record.staleness)
            self._board.add_scalar("isochron/samples_per_second", samples_per_second, record.step)

    def keep(self, record: StepRecord | UpdateRecord) -> None:
        """In the log alone."""
        self._next_step = record.step + 1
        if self._log is not None:
            self._log.write(record)
        else:
            self._forget_from(record.step)
            self._recent.append(record)

    def _write(self, record: StepRecord | UpdateRecord) -> None:
        self.keep(record)
        if self._options.on_step is not None:
            self._options.on_step(record)

    def _draw(
        self, record: StepRecord | UpdateRecord, workers: list[WorkerStep], figure: str, value: float
    ) -> None:
        scalar = self._board.add_scalar
        scalar(f"isochron/{figure}", value, record.step)
        scalar("isochron/step_seconds", record.seconds, record.step)
        if record.loss == record.loss:
            scalar("isochron/loss", record.loss, record.step)
        for worker in workers:
            name = self._names.get(worker.id, str(worker.id))
            scalar(f"isochron/batch_size/{name}", worker.batch, record.step)
            scalar(f"isochron/compute_seconds/{name}", worker.compute_seconds, record.step)

    def event(self, record: EventRecord) -> None:
        level = logging.INFO if record.event == Event.EPOCH_END else logging.WARNING
        log.log(level, "step %d: %s of worker %d %s", record.step, record.event, record.worker, record.words)
        if self._log is not None:
            self._log.write(record)
        elif record.event == Event.ROLLBACK:
            self._forget_from(record.step)
        if self._options.on_event is not None:
            self._options.on_event(record)

    def evaluation(self, step: int, seconds: float, loss: float, accuracy: float) -> None:
        if self._log is not None:
            self._log.evaluation(step=step, seconds=seconds, loss=loss, accuracy=accuracy)
        if self._board is not None:
            self._board.add_scalar("isochron/test_accuracy", accuracy, step)

    def close(self) -> None:
        if self._log is not None:
            self._log.end()
        self._log = None
        if self._board is not None and self._board is not self._options.tensorboard:
            self._board.close()
        self._board = None
