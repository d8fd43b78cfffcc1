"""What a job keeps beside its replica: the run log, and the text of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable

from isochron import _core
from isochron.served.session import Session
from isochron.tensorflow.options import JobOptions


class Progress:
    def __init__(self, replica: _core.Replica, options: JobOptions) -> None:
        self.replica, self._options = replica, options
        self.log: _core.RunLog | None = None
        self.updates = 0  # lines of the log so far, if the workers are not in step
        self.shard_steps = 0  # of their optimizers

    @property
    def line(self) -> int:
        """The number of the next line of the log: a step has one, and so has an update."""
        return self.updates if self._options.asynchronous else self.replica.step

    def start_log(self, path: str, model: str, dataset: str, go_on: bool, now: float) -> None:
        options, replica = self._options, self.replica
        self.log = _core.RunLog(
            path, program="tensorflow", policy=options.policy, global_batch=options.global_batch, seed=options.seed,
            samples_per_epoch=replica.sampler.samples_per_epoch, model=model, dataset=dataset,
            sync=options.sync if options.asynchronous else "",
            workers=[(worker.id, worker.name, worker.kind) for worker in replica.members], go_on=go_on)  # fmt: skip
        if self.log.continued:
            self.log.write(_core.EventRecord(self.line, now, "resume", 0, ""))

    def write(self, records: Iterable[_core.StepRecord | _core.UpdateRecord | _core.EventRecord]) -> None:
        if self.log is not None:
            for record in records:
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

    # A job whose workers are not in step (async_job.py) learns from the coordinator what became of its samples.

    @property
    def learned(self) -> bytes:
        """What the policy has learned."""
        lines = self.replica.state().decode().split("\n")
        return "".join(f"{line[:2]}{line[13:]}\n" for line in lines if line.startswith("controller.", 2)).encode()

    def arrive(self, place: Session, learned: bytes) -> None:
        """All workers are there, and know the same. It takes the place of what the replica's state says of it."""
        new = [*_part("controller", learned.decode()), *_part("place.ledger", place.ledger.state().decode()),
               f"n place.epoch {_number(place.epoch)}", f"n place.position {_number(place.position)}"]  # fmt: skip
        gone = ("controller.", "place.ledger.", "place.epoch ", "place.position ")
        kept = [line for line in self.replica.state().decode().split("\n") if line and not line[2:].startswith(gone)]
        self.replica.restore("\n".join([*kept, *new, ""]).encode())

    def note_update(self, update: _core.UpdateRecord) -> None:
        self.updates = update.step + 1
        self.write([update])


def _part(name: str, state: str) -> list[str]:
    """The lines of a state as those of another one's part."""
    return [f"{line[:2]}{name}.{line[2:]}" for line in state.split("\n") if line]


def _number(value: int) -> str:
    return float(value).hex().removeprefix("0x")
