"""This worker's samples of every step, with nothing prepared for a split that no longer holds.

The split of a step is known only when the one before it is finished. So not batches are prepared but samples: those
that this worker will get if the split stays, in small pieces. When it changes, what is missing is fetched, what is too
much is dropped, and the batch is assembled when the step begins: its size is always that of the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate

from isochron._core import MOST_POSITIONS, Replica, StepPlan
from isochron.errors import Error, SampleError
from isochron.options import SharedOptions
from isochron.torch.pool import Fetcher, SamplePool

Interval = tuple[int, int]


@dataclass(frozen=True)
class Share:
    """What this worker does in a step."""

    plan: StepPlan
    counts: list[int]  # by rank: how many of the step's samples the dataset could give
    batch: Any
    stand_in: bool  # this worker has no samples; its batch counts for nothing


@dataclass(frozen=True)
class LoaderOptions:
    num_workers: int = 0
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    prefetch_steps: int = 2
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: str | None = None

    def validate(self) -> None:
        for name in ("num_workers", "prefetch_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is {value!r}; permitted: a whole number, 0 or more")


@dataclass
class _Piece:
    first: int
    last: int
    ticket: int
    content: Any = None


class MapSource:
    """Samples of a dataset with __getitem__ and __len__, in the order of the replica's permutation."""

    def __init__(self, dataset: Any, options: LoaderOptions, replica: Replica, seed: int) -> None:
        if len(dataset) == 0:
            raise ValueError("the dataset's size is 0; permitted: 1 or more")
        replica.open(len(dataset))
        self._replica = replica
        self._lookup = replica.sampler  # may be an epoch ahead
        self.samples_per_epoch = self._lookup.samples_per_epoch
        self.steps_per_epoch = self._lookup.steps_per_epoch
        self._options = options
        self._fetcher = Fetcher(dataset, options.collate_fn, seed)
        self._pool = SamplePool(
            self._fetcher, options.num_workers, options.worker_init_fn, options.multiprocessing_context
        )
        self._pieces: dict[int, list[_Piece]] = {}  # by epoch; none holds a position that is skipped
        self._skipped: dict[int, set[int]] = {}  # positions, by epoch

    @property
    def position(self) -> int:
        return self._replica.position

    def left(self) -> int:
        """Samples of this epoch that no step has used."""
        return self.samples_per_epoch - self.position

    def take(self) -> Share | None:
        """The step that is due."""
        plan, rank = self._replica.plan(), self._replica.rank
        counts = [last - first - self.skipped_between(first, last) for first, last in plan.slices]
        stand_in = counts[rank] == 0
        batch = self._batch(plan.epoch, *(self._some() if stand_in else plan.mine))
        self._drop_before(plan.epoch, plan.position + plan.step_size)
        if self._options.num_workers > 0:
            split = plan.decision.batch_sizes
            for ahead in range(1, self._options.prefetch_steps + 1):
                self._prefetch(plan.epoch, plan.position + ahead * sum(split), split, rank)
        return Share(plan, counts, batch, stand_in)

    def skip(self, epoch: int, position: int) -> None:
        """For the rest of that epoch: the sample there is one that the dataset cannot give."""
        self._skipped.setdefault(epoch, set()).add(position)
        for piece in list(self._of(epoch)):
            if piece.first <= position < piece.last:
                self._forget(epoch, piece)

    def skipped_between(self, first: int, last: int) -> int:
        """How many of these positions of the present epoch."""
        return sum(first <= position < last for position in self._skipped.get(self._replica.epoch, ()))

    def _some(self) -> Interval:
        """Positions of the epoch with two samples that can be had, or one."""
        skipped = self._skipped.get(self._replica.epoch, set())
        there = [one for one in range(min(2 + len(skipped), self.samples_per_epoch)) if one not in skipped]
        if not there:
            raise Error("the dataset has failed at every sample")
        return there[0], there[:2][-1] + 1

    def _forget(self, epoch: int, piece: _Piece) -> None:
        self._of(epoch).remove(piece)
        if piece.content is None:
            self._pool.drop(piece.ticket)

    def take_positions(self, first: int, last: int) -> Any:
        """Samples of the present epoch, in a job that is not in step: nobody knows who gets which samples next, so none
        are prepared, but the processes share in those that are asked for."""
        batch = self._batch(self._replica.epoch, first, last)
        self._pieces.clear()
        return batch

    def close(self) -> None:
        self._pool.close()

    def _batch(self, epoch: int, first: int, last: int) -> Any:
        self._request(epoch, first, last)
        parts = []
        for piece in self._of(epoch):
            low, high = max(first, piece.first), min(last, piece.last)
            if low < high:
                if piece.content is None:
                    piece.content = self._collect(epoch, piece)
                parts.append((piece.content, low - piece.first, high - piece.first))
        return self._fetcher.assemble(parts)

    def _collect(self, epoch: int, piece: _Piece) -> Any:
        try:
            return self._pool.collect(piece.ticket)
        except SampleError as error:
            self._of(epoch).remove(piece)
            for position in range(piece.first, piece.last):
                if self._lookup_samples(epoch, position, position + 1) == [error.sample]:
                    error.place = epoch, position
            raise

    def _lookup_samples(self, epoch: int, first: int, last: int) -> list[int]:
        if self._lookup.epoch != epoch:
            self._lookup.seek(epoch, 0)
        return self._lookup.samples(first, last)

    def _of(self, epoch: int) -> list[_Piece]:
        return self._pieces.setdefault(epoch, [])

    def _prefetch(self, epoch: int, position: int, split: list[int], rank: int) -> None:
        if position >= self.samples_per_epoch:
            epoch, position = epoch + 1, position - self.steps_per_epoch * sum(split)
        if position < 0 or position >= self.samples_per_epoch:
            return
        self._lookup.seek(epoch, position)
        first, last = self._lookup.slices(split)[rank]
        self._request(epoch, first, last)

    def _request(self, epoch: int, first: int, last: int) -> None:
        """Asks for what is not there yet of these positions."""
        pieces = self._of(epoch)
        at = first
        for piece in list(pieces):
            if piece.first >= last:
                break
            if piece.last > at:
                self._request_gap(epoch, at, piece.first)
                at = piece.last
        self._request_gap(epoch, at, last)
        pieces.sort(key=lambda piece: piece.first)

    def _request_gap(self, epoch: int, first: int, last: int) -> None:
        for position in sorted(self._skipped.get(epoch, ())):
            if first <= position < last:
                self._request_gap(epoch, first, position)
                first = position + 1
        if first >= last:
            return
        processes = max(self._options.num_workers, 1)
        length = last - first if self._options.num_workers == 0 else min(max(-(-(last - first) // processes), 1), 32)
        for start in range(first, last, length):
            end = min(start + length, last)
            ticket = self._pool.request(epoch, self._lookup_samples(epoch, start, end))
            self._of(epoch).append(_Piece(start, end, ticket))

    def _drop_before(self, epoch: int, position: int) -> None:
        for number in list(self._pieces):
            kept = []
            for piece in self._pieces[number]:
                if number > epoch or (number == epoch and piece.last > position):
                    kept.append(piece)
                elif piece.content is None:
                    self._pool.drop(piece.ticket)
            self._pieces[number] = kept
            if not kept:
                del self._pieces[number]
        self._skipped = {number: positions for number, positions in self._skipped.items() if number >= epoch}


class StreamSource:
    """Samples of an iterable dataset, which come in one order, the same on all workers: each reads all of them and
    keeps its share. So every sample is used once, without a word between the workers; that reading costs each of them
    the whole stream is the price."""

    samples_per_epoch = 0  # unknown

    def __init__(self, dataset: Any, options: LoaderOptions, replica: Replica, global_batch: int, drop: bool) -> None:
        replica.open_stream()
        self._replica = replica
        self._dataset = dataset
        self._options = options
        self._global_batch = global_batch
        self._drop = drop  # what does not fill a step at the end
        self._collate = options.collate_fn or default_collate
        self._stream: Iterator[Any] | None = None
        self._taken: list[Any] = []  # for the step under way, which may have to be dealt again
        self._place = (-1, -1)  # their epoch, and the position of the first

    @property
    def steps_per_epoch(self) -> int:
        try:
            count = len(self._dataset)
        except TypeError:
            raise TypeError("the stream has no length, so nobody knows the number of its steps") from None
        return count // self._global_batch + int(not self._drop and count % self._global_batch > 0)

    @property
    def position(self) -> int:
        return self._replica.position

    def left(self) -> int:
        return MOST_POSITIONS

    def take(self) -> Share | None:
        """None: the epoch is over."""
        self._read()
        size = len(self._taken)
        if size == 0 or (size < self._global_batch and self._drop):
            self._replica.end_epoch()
            return None
        plan = self._replica.plan(size)
        mine = [self._taken[index - plan.position] for index in range(*plan.mine)]
        batch = self._collate(mine or self._taken[:2])
        return Share(plan, plan.batches, batch, stand_in=not mine)

    def _read(self) -> None:
        """The samples at the replica's place, which may have gone on, back or elsewhere since the last step."""
        place = self._replica.epoch, self._replica.position
        if self._stream is not None and place == self._place:
            return
        epoch, position = self._place
        if self._stream is None or place != (epoch, position + len(self._taken)):
            self._stream = self._open()
        self._taken = list(islice(self._stream, self._global_batch))
        self._place = place

    def skipped_between(self, first: int, last: int) -> int:
        return 0

    def close(self) -> None:
        self._stream = None

    def _open(self) -> Iterator[Any]:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._replica.epoch)
        loader = DataLoader(
            self._dataset,
            batch_size=None,
            num_workers=self._options.num_workers,
            worker_init_fn=self._options.worker_init_fn,
            multiprocessing_context=self._options.multiprocessing_context if self._options.num_workers else None,
        )
        return islice(iter(loader), self.position, None)


Source = MapSource | StreamSource


def is_stream(dataset: Any) -> bool:
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def make_source(dataset: Any, options: LoaderOptions, replica: Replica, job: SharedOptions) -> Source:
    """Opens the replica, too."""
    options.validate()
    if is_stream(dataset):
        return StreamSource(dataset, options, replica, job.global_batch, job.last_batch == "drop")
    return MapSource(dataset, options, replica, job.seed)
