"""Samples of a dataset whose lengths are known: every step deals its samples by cost.

Which positions of a step are this worker's is known only when the step before is finished. So those are prepared that
this worker will get if nothing is learned until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from isochron._core import Replica, StepPlan
from isochron.lengths import learns_squares
from isochron.options import SharedOptions
from isochron.torch import lengths
from isochron.torch.source import LoaderOptions, MapSource, Share
from isochron.torch.world import World


class DealtSource(MapSource):
    def __init__(
        self, dataset: Any, options: LoaderOptions, replica: Replica, job: SharedOptions, world: World
    ) -> None:
        self._lengths = lengths.lengths_of(dataset, options.lengths)
        self._global_batch = job.global_batch
        super().__init__(dataset, options, replica, job, world)

    def _open(self, size: int, options: LoaderOptions, replica: Replica) -> None:
        works: Any = lengths.works_of(self._lengths, options.cost)  # any array will do
        replica.open_by_cost(works, options.collate, learns_squares=learns_squares(options.cost))

    def take(self) -> Share | None:
        share = super().take()
        assert share is not None
        plan = share.plan
        items = 0.0 if share.stand_in else self._items_of(plan.epoch, plan.positions(self._replica.rank))
        if self._options.count is None:
            return replace(share, items=items)
        everybody = [position for positions in self._positions(plan) for position in positions]
        return replace(share, items=items, all_items=self._items_of(plan.epoch, everybody))

    def _positions(self, plan: StepPlan) -> list[Sequence[int]]:
        return [plan.positions(rank) for rank in range(len(plan.batches))]

    def _items_of(self, epoch: int, positions: Sequence[int]) -> float:
        return float(self._lengths[self._lookup_samples(epoch, self._there(epoch, positions))].sum())

    def _foresee(self, plan: StepPlan) -> Iterator[tuple[int, Sequence[int]]]:
        step = plan.position // self._global_batch
        for ahead in range(step + 1, step + 1 + self._options.prefetch_steps):
            epoch, number = plan.epoch + ahead // self.steps_per_epoch, ahead % self.steps_per_epoch
            yield epoch, self._replica.foresee(epoch, number * self._global_batch)
