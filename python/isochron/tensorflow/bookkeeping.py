"""What a job keeps beside its replica: the run log, what it sums up, and the text of a checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from functools import partial

from isochron import _core
from isochron.log_files import begin, numbered
from isochron.tensorflow.options import JobOptions

log = logging.getLogger("isochron")


class Bookkeeping:
    def __init__(self, replica: _core.Replica, options: JobOptions) -> None:
        self.replica, self._options = replica, options
        self.log: _core.RunLog | None = None  # of the dataset that is being trained on
        self._logs: dict[int, _core.RunLog | None] = {}  # by the datasets' numbers; None: it could not be begun
        self.meter = _core.Meter(options.global_batch, replica.members)
        self.updates = 0  # lines of the log so far, if the workers are not in step
        self.shard_steps = 0  # of their optimizers

    @property
    def line(self) -> int:
        """The number of the next line of the log: a step has one, and so has an update."""
        return self.updates if self._options.asynchronous else self.replica.step

    def start_log(self, number: int, model: str, dataset: str, go_on: bool, others: bool, now: float) -> None:
        """The log of the dataset with this number gets the next lines. One of another run is set aside. `others`: there
        are other datasets, on which steps may have been since the log's last one. Without one that cannot be written
        training goes on."""
        if number in self._logs:
            before, self.log = self.log, self._logs[number]
            if self.log is not None and self.log is not before:
                self.log.write(_core.EventRecord(self.line, now, _core.Event.OTHER_DATA, 0, ""))
            return
        assert self._options.log is not None
        path = numbered(self._options.log, number)
        settings, replica = self._options.settings, self.replica
        what = path, "tensorflow", settings, replica.members, replica.sampler.samples_per_epoch
        self.log = self._logs[number] = begin(
            partial(_core.RunLog, *what, warn=log.warning, go_on=go_on, model=model, dataset=dataset)
        )
        if self.log is None:
            return
        if others and self.log.next_step < self.line:
            self.log.write(_core.EventRecord(self.line, now, _core.Event.OTHER_DATA, 0, ""))
        elif self.log.continued:
            self.log.write(_core.EventRecord(self.line, now, _core.Event.RESUME, 0, ""))

    def write(self, records: Iterable[_core.StepRecord | _core.UpdateRecord | _core.EventRecord]) -> None:
        for record in records:
            self.meter.add(record)
            if self.log is not None:
                self.log.write(record)

    def close(self) -> None:
        for one in self._logs.values():
            if one is not None:
                one.end()

    def state(self, replica: bytes, places: dict[int, str]) -> str:
        """The job without its model, as text. Between two steps."""
        saved = {"replica": replica.decode(), "updates": self.line, "shard_steps": self.shard_steps}
        return json.dumps({**saved, "datasets": places} if places else saved)

    def restore(self, text: str, places: Callable[[bytes, dict[str, str]], None]) -> None:
        """On any number of workers, between two steps; `places` puts the job there."""
        saved = json.loads(text)
        if "replica" not in saved:
            raise ValueError(
                "the checkpoint is of an isochron before 0.1.0; permitted: that of 0.1.0 or a later one. "
                "tf.train.Checkpoint(model=..., optimizer=...) reads model and optimizer from it"
            )
        places(saved["replica"].encode(), saved.get("datasets", {}))
        self.updates, self.shard_steps = saved["updates"], saved["shard_steps"]

    def note_update(self, update: _core.UpdateRecord) -> None:
        self.updates = update.step + 1
        self.write([update])
