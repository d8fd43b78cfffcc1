"""Samples of a dataset whose lengths are known: every step deals its samples by cost.

Which positions of a step are this worker's is known only when the step before is finished. Samples are prepared by
position: those that this worker will get if nothing is learned until then; what else it gets is fetched when it is
known, and what is too much is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from isochron._core import Replica, StepPlan
from isochron.errors import SampleError
from isochron.torch import lengths
from isochron.torch.source import LoaderOptions, MapSource, Share


@dataclass(eq=False)
class _Prepared:
    """Samples that were asked for together."""

    positions: list[int]
    ticket: int
    content: Any = None


class DealtSource(MapSource):
    def __init__(self, dataset: Any, options: LoaderOptions, replica: Replica, seed: int, global_batch: int) -> None:
        self._lengths = lengths.lengths_of(dataset, options.lengths)
        self._global_batch = global_batch
        super().__init__(dataset, options, replica, seed)
        self._prepared: dict[tuple[int, int], _Prepared] = {}  # by epoch and position

    def _open(self, size: int, options: LoaderOptions, replica: Replica) -> None:
        works: Any = lengths.works_of(self._lengths, options.cost)  # any array will do
        replica.open_by_cost(works, options.collate)

    def take(self) -> Share | None:
        plan, rank = self._replica.plan(), self._replica.rank
        shares = [self._there(plan, one) for one in range(len(plan.slices))]
        counts = [len(share) for share in shares]
        stand_in = counts[rank] == 0
        mine = list(range(*self._some())) if stand_in else shares[rank]
        batch = self._gather(plan.epoch, mine)
        items = 0.0 if stand_in else self._items_of(plan.epoch, mine)
        means_over_lengths = self._options.count is not None
        everybody = [position for share in shares for position in share] if means_over_lengths else []
        all_items = self._items_of(plan.epoch, everybody) if means_over_lengths else None
        self._drop_before(plan.epoch, plan.position + plan.step_size)
        if self._options.num_workers > 0:
            self._prepare_ahead(plan)
        return Share(plan, counts, batch, stand_in, items, self._skipped.get(plan.epoch, ()), all_items)

    def skip(self, epoch: int, position: int) -> None:
        super().skip(epoch, position)
        chunk = self._prepared.get((epoch, position))
        if chunk is not None:
            self._forget_prepared(epoch, chunk)

    def _there(self, plan: StepPlan, rank: int) -> list[int]:
        skipped = self._skipped.get(plan.epoch, set())
        return [position for position in plan.positions(rank) if position not in skipped]

    def _items_of(self, epoch: int, positions: list[int]) -> float:
        samples = [self._lookup_samples(epoch, position, position + 1)[0] for position in positions]
        return float(self._lengths[samples].sum())

    def _prepare_ahead(self, plan: StepPlan) -> None:
        size = self.steps_per_epoch
        step = plan.position // self._global_batch
        for ahead in range(1, self._options.prefetch_steps + 1):
            epoch, number = plan.epoch + (step + ahead) // size, (step + ahead) % size
            skipped = self._skipped.get(epoch, set())
            foreseen = self._replica.foresee(epoch, number * self._global_batch)
            self._ask(epoch, [position for position in foreseen if position not in skipped])

    def _ask(self, epoch: int, positions: list[int]) -> None:
        """For those that are not there yet."""
        missing = [position for position in positions if (epoch, position) not in self._prepared]
        processes = max(self._options.num_workers, 1)
        length = max(1, len(missing) if self._options.num_workers == 0 else min(-(-len(missing) // processes), 32))
        for start in range(0, len(missing), length):
            some = missing[start : start + length]
            samples = [self._lookup_samples(epoch, position, position + 1)[0] for position in some]
            chunk = _Prepared(some, self._pool.request(epoch, samples))
            self._prepared.update({(epoch, position): chunk for position in some})

    def _gather(self, epoch: int, positions: list[int]) -> Any:
        self._ask(epoch, positions)
        parts = []
        for position in positions:
            chunk = self._prepared[epoch, position]
            if chunk.content is None:
                chunk.content = self._receive(epoch, chunk)
            at = chunk.positions.index(position)
            parts.append((chunk.content, at, at + 1))
        return self._fetcher.assemble(parts)

    def _receive(self, epoch: int, chunk: _Prepared) -> Any:
        try:
            return self._pool.collect(chunk.ticket)
        except SampleError as error:
            self._remove(epoch, chunk)
            for position in chunk.positions:
                if self._lookup_samples(epoch, position, position + 1) == [error.sample]:
                    error.place = epoch, position
            raise

    def _remove(self, epoch: int, chunk: _Prepared) -> None:
        for position in chunk.positions:
            self._prepared.pop((epoch, position), None)

    def _forget_prepared(self, epoch: int, chunk: _Prepared) -> None:
        self._remove(epoch, chunk)
        if chunk.content is None:
            self._pool.drop(chunk.ticket)

    def _drop_before(self, epoch: int, position: int) -> None:
        super()._drop_before(epoch, position)
        over: Iterable[tuple[int, _Prepared]] = {
            id(chunk): (number, chunk)
            for (number, _), chunk in self._prepared.items()
            if number < epoch or (number == epoch and max(chunk.positions) < position)
        }.values()
        for number, chunk in over:
            self._forget_prepared(number, chunk)
