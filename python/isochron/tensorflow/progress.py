"""What a job keeps beside its replica: the run log, what it sums up, and the text of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable

from isochron import _core
from isochron.tensorflow.options import JobOptions


class Progress:
    def __init__(self, replica: _core.Replica, options: JobOptions) -> None:
        self.replica, self._options = replica, options
        self.log: _core.RunLog | None = None
        self.meter = _core.Meter(options.global_batch, replica.members)
        self.updates = 0  # lines of the log so far, if the workers are not in step
        self.shard_steps = 0  # of their optimizers

    @property
    def line(self) -> int:
        """The number of the next line of the log: a step has one, and so has an update."""
        return self.updates if self._options.asynchronous else self.replica.step

    def start_log(self, path: str, model: str, dataset: str, go_on: bool, now: float) -> None:
        settings, replica = self._options.settings, self.replica
        self.log = _core.RunLog(
            path, "tensorflow", settings, replica.members, replica.sampler.samples_per_epoch, go_on=go_on, model=model,
            dataset=dataset)  # fmt: skip
        if self.log.continued:
            self.log.write(_core.EventRecord(self.line, now, "resume", 0, ""))

    def write(self, records: Iterable[_core.StepRecord | _core.UpdateRecord | _core.EventRecord]) -> None:
        for record in records:
            if not isinstance(record, _core.EventRecord):
                self.meter.add(record)
            if self.log is not None:
                self.log.write(record)

    def state(self) -> str:
        """The job without its model, as text. Between two steps."""
        replica = self.replica.state().decode()
        return json.dumps({"replica": replica, "updates": self.line, "shard_steps": self.shard_steps})

    def restore(self, text: str) -> None:
        """On any number of workers, between two steps."""
        saved = json.loads(text)
        if "replica" not in saved:
            raise ValueError(
                "the checkpoint is of an isochron before 0.1.0; permitted: that of 0.1.0 or a later one. "
                "tf.train.Checkpoint(model=..., optimizer=...) reads model and optimizer from it"
            )
        self.replica.restore(saved["replica"].encode())
        self.updates, self.shard_steps = saved["updates"], saved["shard_steps"]

    def note_update(self, update: _core.UpdateRecord) -> None:
        self.updates = update.step + 1
        self.write([update])
