"""What a training loop iterates over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isochron.torch.job import Job


class Loader:
    """What is left of the epoch, this worker's share of a global batch at a time; iterating again gives the next epoch.

    Leaving the loop early is no loss: the next one goes on where it was.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def __iter__(self) -> Iterator[Any]:
        self._job.finish_step()
        self._job._loop_epoch = self._job.epoch
        while (batch := self._job._begin_step()) is not None:
            yield batch[0]

    def __len__(self) -> int:
        """Steps of an epoch, the same on all workers."""
        return self._job.steps_per_epoch

    @property
    def dataset(self) -> Any:
        return self._job._dataset

    def state_dict(self) -> dict[str, Any]:
        return self._job.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._job.load_state_dict(saved)
