"""What a training loop iterates over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isochron._core import Ledger
    from isochron.torch.datasets import Data
    from isochron.torch.job import Job


# What people are used to ask torch's DataLoader, and what to do instead.
HABITS = {
    "sampler": "the order follows the job's seed= and the epoch, so that set_epoch() is not needed; leave it out",
    "set_epoch": "the loader counts its epochs by itself; leave it out",
    "batch_sampler": "the job deals the samples; say sampler= to job.loader() for an order or a choice of one's own",
    "batch_size": "shares change from step to step; job.batch_sizes has those of all workers, and "
    "job.options.global_batch is their sum",
    "drop_last": "say last_batch='drop' to the Job; job.options.last_batch has it",
    "generator": "the order follows the job's seed=",
}


class Loader:
    """What is left of the epoch, this worker's share of a global batch at a time; iterating again gives the next epoch.

    Leaving the loop early is no loss: the next one goes on where it was, unless job.end_epoch() says otherwise. While
    the batch of another loader waits for its backward pass, this one gives batches beside it, in the same steps; behind
    it, steps of its own, so that two loops may take turns.
    """

    def __init__(self, job: Job, data: Data) -> None:
        self._job = job
        self._data = data

    def __iter__(self) -> Iterator[Any]:
        job = self._job
        if job._is_beside(self._data):
            while True:
                yield job._take_beside(self._data)
        job.finish_step()
        job._begin_loop(self._data)
        epoch = job._loop_epoch
        while not job._has_enough() and (batch := job._begin_step()) is not None:
            yield batch[0]
            if job._data is not self._data:  # a loop over another one took its steps in between
                job._begin_loop(self._data, epoch)

    def __len__(self) -> int:
        """Steps of an epoch, the same on all workers."""
        steps, most = self._data.source.steps_per_epoch, self._data.options.max_steps
        return steps if most is None else min(steps, most)

    def __repr__(self) -> str:
        where = f"step {self._job.step}, epoch {self.epoch}"
        return f"<Loader of {type(self.dataset).__name__} in a job of {self._job.size} workers: {where}>"

    def __getattr__(self, name: str) -> Any:
        what = f"the loader of a job has no attribute '{name}'"
        raise AttributeError(f"{what}: {HABITS[name]}" if name in HABITS else what)

    @property
    def dataset(self) -> Any:
        """What it was made of."""
        return self._data.dataset

    @property
    def epoch(self) -> int:
        """The epoch of this loader's dataset."""
        return self._job._epoch_of(self._data)

    @property
    def ledger(self) -> Ledger:
        """Which positions of this dataset's epoch were used."""
        return self._job._ledger_of(self._data)

    def epochs(self, count: int) -> Iterator[int]:
        """As job.epochs(), of this loader's dataset."""
        while not self._job.stopping and self.epoch < count:
            yield self.epoch
            self._job.finish_step()

    def state_dict(self) -> dict[str, Any]:
        """The job's, which holds the place in every dataset: for libraries that save a loader of their own."""
        return self._job.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Goes on, with the job, where `saved` was taken."""
        self._job.load_state_dict(saved)
