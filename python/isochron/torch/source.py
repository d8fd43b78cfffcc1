"""This worker's samples of every step, with nothing prepared for a split that no longer holds.

The split of a step is known only when the one before it is finished. So not batches are prepared but samples: those
that this worker will get if the split stays, in small chunks. When it changes, what is missing is fetched, what is too
much is dropped, and the batch is assembled when the step begins: its size is always that of the decision.
"""

from __future__ import annotations

import difflib
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

from torch.utils.data import DistributedSampler, IterableDataset

from isochron import lengths
from isochron._core import Replica, StepPlan, mix_key
from isochron.errors import Error, SampleError
from isochron.options import SharedOptions
from isochron.other_data import differs_at_ends
from isochron.torch.beginnings import Beginning
from isochron.torch.pool import Fetcher, Generators, SamplePool, seed_everything
from isochron.torch.world import World


@dataclass(frozen=True)
class Share:
    """What this worker does in a step."""

    plan: StepPlan
    counts: list[int]  # by rank: how many of the step's samples the dataset could give
    batch: Any
    stand_in: bool  # this worker has no samples; its batch counts for nothing
    items: float | None = None  # the lengths of this worker's samples together, where they are known
    skipped: Collection[int] = ()  # positions that the dataset cannot give
    all_items: float | None = None  # those of all workers, if losses are means over them


# What people are used to say to torch's DataLoader.
HABITS = {
    "shuffle": "samples always come in a random order, by the job's seed=; leave it out",
    "batch_size": "the job deals global_batch= samples of every step among its workers; leave it out",
    "drop_last": "say last_batch='drop' to the Job",
    "persistent_workers": "loader processes always live as long as the job; leave it out",
    "prefetch_factor": "say prefetch_steps=, in steps",
    "batch_sampler": "the job deals; say sampler= for an order or a choice of one's own",
    "generator": "say seed= to the Job",
    "timeout": "say timeout= to the Job",
    "device": "say to_device=True for batches on the job's device",
    "pin_memory_device": "say pin_memory=True",
}


class LoaderKeywords(TypedDict, total=False):
    """The keywords of `job.loader()`; docs/pytorch.md says more of each."""

    num_workers: int
    """Processes that fetch samples."""
    collate_fn: Callable[[list[Any]], Any] | None
    """Makes a batch of a list of samples; None: torch's default."""
    pin_memory: bool
    """Batches lie in page-locked memory, from which copies to a GPU are faster."""
    prefetch_steps: int
    """So many steps ahead, by the split of the present one."""
    worker_init_fn: Callable[[int], None] | None
    """Called with its number in every process that fetches samples, when it begins."""
    multiprocessing_context: Any
    """How these processes start: fork, spawn, forkserver, or a context of torch.multiprocessing."""
    sampler: Iterable[int] | None
    """What an epoch uses, in its order; None: every sample, in the seed's order."""
    to_device: bool | None
    """Batches come on the job's device; None: where prepare() has moved a model there."""
    max_steps: int | None
    """An epoch is over after so many."""
    lengths: Any
    """The lengths of the samples: shares are dealt by cost (lengths.py)."""
    cost: Any
    """What a sample of a length costs."""
    collate: Literal["padded", "packed"]
    """How the costs of a batch add up."""
    count: Literal["lengths"] | None
    """What losses are means over; None: samples."""


@dataclass(frozen=True)
class LoaderOptions:
    """LoaderKeywords with their defaults."""

    num_workers: int = 0
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    prefetch_steps: int = 2
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    sampler: Iterable[int] | None = None
    to_device: bool | None = None
    max_steps: int | None = None
    lengths: Any = field(default=None, compare=False)
    cost: Any = "linear"
    collate: str = "padded"
    count: str | None = None

    @staticmethod
    def of(given: dict[str, Any]) -> LoaderOptions:
        """Raises ValueError that says what to do instead of what torch's DataLoader would have been told."""
        known = sorted(one.name for one in fields(LoaderOptions))
        for name, value in given.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                advice = f"did you mean {near[0]}?" if near else f"permitted: {', '.join(known)}"
                raise ValueError(f"loader() got {name}={value!r}; {HABITS.get(name, advice)}")
        options = LoaderOptions(**given)
        options.validate()
        return options

    def validate(self) -> None:
        lengths.check(self.lengths, self.cost, self.collate, self.sampler, self.count)
        if self.max_steps is not None and (isinstance(self.max_steps, bool) or not isinstance(self.max_steps, int)
                                           or self.max_steps < 1):  # fmt: skip
            raise ValueError(f"max_steps is {self.max_steps!r}; permitted: a whole number, 1 or more, or None")
        if isinstance(self.sampler, DistributedSampler):
            raise ValueError("sampler is a DistributedSampler; permitted: one for a single process, the job deals")
        for name in ("num_workers", "prefetch_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is {value!r}; permitted: a whole number, 0 or more")


@dataclass(eq=False)
class _Chunk:
    """Samples that were asked for together."""

    positions: Sequence[int]  # increasing
    ticket: int
    content: Any = None


@dataclass
class Ends:
    """The first and the last sample of a dataset."""

    samples: Beginning
    stays: bool  # whether they are the same when they are asked for again
    plain: bool  # whether they are collated as PyTorch does it


class MapSource:
    """Samples of a dataset with __getitem__ and __len__, in the order of the replica's permutation."""

    def __init__(
        self, dataset: Any, options: LoaderOptions, replica: Replica, job: SharedOptions, world: World
    ) -> None:
        seed, size = job.seed, size_of(dataset, options)
        if size == 0:
            raise ValueError("the dataset's size is 0; permitted: 1 or more")
        self._open(size, options, replica)
        self._replica = replica
        self._world = world
        self._seed = seed
        self._orders: dict[int, list[int]] = {}  # a sampler's, by epoch
        self._first_place: tuple[int, int] | None = None  # epoch and position of the first step
        self._lookup = replica.sampler  # may be an epoch ahead
        self.samples_per_epoch = self._lookup.samples_per_epoch
        self.steps_per_epoch = self._lookup.steps_per_epoch
        self._options = options
        self._fetcher = Fetcher(dataset, options.collate_fn, seed)
        self._pool = SamplePool(
            self._fetcher, options.num_workers, options.worker_init_fn, options.multiprocessing_context
        )
        self._chunks: dict[int, dict[int, _Chunk]] = {}  # by epoch and position; none holds one that is skipped
        self._skipped: dict[int, set[int]] = {}  # positions, by epoch

    def _open(self, size: int, options: LoaderOptions, replica: Replica) -> None:
        replica.open(size)

    @property
    def position(self) -> int:
        return self._replica.position

    def left(self, most: int) -> int:
        """Samples of this epoch that no finished step has used, as far as `most`."""
        return min(self.samples_per_epoch - self.position, most)

    def take(self) -> Share | None:
        """The step that is due."""
        self.compare_orders()
        plan, rank = self._replica.plan(), self._replica.rank
        shares = [self._there(plan.epoch, positions) for positions in self._positions(plan)]
        batch = self._batch(plan.epoch, shares[rank] or self._some())
        self._drop_before(plan.epoch, plan.position + plan.step_size)
        if self._options.num_workers > 0:
            for epoch, positions in self._foresee(plan):
                self._request(epoch, positions)
        counts = [len(share) for share in shares]
        return Share(plan, counts, batch, not shares[rank], skipped=self._skipped.get(plan.epoch, ()))

    def _positions(self, plan: StepPlan) -> list[Sequence[int]]:
        """By rank."""
        return [range(*one) for one in plan.slices]

    def _foresee(self, plan: StepPlan) -> Iterator[tuple[int, Sequence[int]]]:
        """Epochs and positions of the next steps, if the split stays."""
        split = plan.decision.batch_sizes
        for ahead in range(1, self._options.prefetch_steps + 1):
            epoch, position = plan.epoch, plan.position + ahead * sum(split)
            if position >= self.samples_per_epoch:
                epoch, position = epoch + 1, position - self.steps_per_epoch * sum(split)
            if 0 <= position < self.samples_per_epoch:
                self._lookup.seek(epoch, position)
                yield epoch, range(*self._lookup.slices(split)[self._replica.rank])

    def take_part(self, plan: StepPlan, first: int, last: int) -> Any:
        """A batch of this worker's share of a round; what comes next is prepared."""
        batch = self._batch(plan.epoch, range(first, last))
        self._drop_before(plan.epoch, last)
        if self._options.num_workers > 0:
            ahead = self._options.prefetch_steps * (last - first)
            self._request(plan.epoch, range(last, min(last + ahead, plan.mine[1])))
            begin = plan.mine[0] + plan.step_size  # of the next round, if the split stays
            self._request(plan.epoch, range(begin, min(begin + last + ahead - plan.mine[1], self.samples_per_epoch)))
        return batch

    def plan_again(self, plan: StepPlan) -> None:
        self._replica.plan()

    def skip(self, epoch: int, position: int) -> None:
        """For the rest of that epoch: the sample there is one that the dataset cannot give."""
        self._skipped.setdefault(epoch, set()).add(position)
        chunk = self._chunks.get(epoch, {}).get(position)
        if chunk is not None:
            self._forget(epoch, chunk)

    def skipped_between(self, first: int, last: int) -> int:
        """How many of these positions of the present epoch."""
        return sum(first <= position < last for position in self._skipped.get(self._replica.epoch, ()))

    def _there(self, epoch: int, positions: Sequence[int]) -> Sequence[int]:
        """Those that the dataset can give."""
        skipped = self._skipped.get(epoch)
        return [one for one in positions if one not in skipped] if skipped else positions

    def _some(self) -> Sequence[int]:
        """Positions of the epoch with two samples that can be had, or one."""
        count = 2 + len(self._skipped.get(self._replica.epoch, ()))
        there = self._there(self._replica.epoch, range(min(count, self.samples_per_epoch)))[:2]
        if not there:
            raise Error("the dataset has failed at every sample")
        return there

    def take_beside(self, parts: list[tuple[int, int, int]]) -> Any:
        """One batch of positions (epoch, first, last), for a loader beside another one."""
        batch = self._fetcher.assemble(
            [part for epoch, first, last in parts for part in self._parts(epoch, range(first, last))]
        )
        self._drop_before(*parts[-1][::2])
        return batch

    def take_positions(self, first: int, last: int) -> Any:
        """Samples of the present epoch, in a job that is not in step: nobody knows who gets which samples next, so none
        are prepared, but the processes share in those that are asked for."""
        batch = self._batch(self._replica.epoch, range(first, last))
        self._chunks.clear()
        return batch

    def close(self) -> None:
        self._pool.close()

    def _batch(self, epoch: int, positions: Sequence[int]) -> Any:
        return self._fetcher.assemble(self._parts(epoch, positions))

    def _parts(self, epoch: int, positions: Sequence[int]) -> list[tuple[Any, int, int]]:
        """Chunks, and where in them the samples are."""
        positions = self._there(epoch, positions)
        self._request(epoch, positions)
        parts, done = [], 0
        while done < len(positions):
            chunk = self._chunks[epoch][positions[done]]
            if chunk.content is None:
                chunk.content = self._collect(epoch, chunk)
            first = last = chunk.positions.index(positions[done])
            while done < len(positions) and last < len(chunk.positions) and chunk.positions[last] == positions[done]:
                last, done = last + 1, done + 1
            parts.append((chunk.content, first, last))
        return parts

    def _collect(self, epoch: int, chunk: _Chunk) -> Any:
        try:
            return self._pool.collect(chunk.ticket)
        except SampleError as error:
            self._remove(epoch, chunk)
            samples = self._lookup_samples(epoch, chunk.positions)
            error.place = epoch, chunk.positions[samples.index(error.sample)]
            raise

    def _remove(self, epoch: int, chunk: _Chunk) -> None:
        for position in chunk.positions:
            del self._chunks[epoch][position]

    def _forget(self, epoch: int, chunk: _Chunk) -> None:
        self._remove(epoch, chunk)
        if chunk.content is None:
            self._pool.drop(chunk.ticket)

    def _lookup_samples(self, epoch: int, positions: Sequence[int]) -> list[int]:
        if self._options.sampler is not None:
            order = self._order_of(epoch)
            return [order[position] for position in positions]
        if self._lookup.epoch != epoch:
            self._lookup.seek(epoch, 0)
        if isinstance(positions, range):
            return self._lookup.samples(positions.start, positions.stop)
        return [self._lookup.samples(position, position + 1)[0] for position in positions]

    def _order_of(self, epoch: int) -> list[int]:
        """What the sampler draws, seeded by the epoch, so that all workers and a resumed job have the same."""
        if epoch not in self._orders:
            sampler: Any = self._options.sampler
            before, seed = Generators(), mix_key([self._seed, epoch])
            seed_everything(seed)
            if getattr(sampler, "generator", None) is not None:
                sampler.generator.manual_seed(seed)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            self._orders = {number: order for number, order in self._orders.items() if number + 1 >= epoch}
            self._orders[epoch] = [int(index) for index in sampler]
            before.restore()
            if (drawn := len(self._orders[epoch])) < self.samples_per_epoch:
                raise Error(f"the sampler gave {drawn} samples in epoch {epoch}, fewer than its len()")
        return self._orders[epoch]

    def compare_orders(self) -> None:
        """Before the first step of an epoch and of a resumed job, whether it is dealt for the first time or again: a
        sampler with a generator of its own may draw differently on every worker. Collective."""
        if self._options.sampler is None:
            return
        place = epoch, position = self._replica.epoch, self._replica.position
        self._first_place = self._first_place or place
        if position > 0 and place != self._first_place:
            return
        mine = zlib.crc32(array("q", self._order_of(epoch)).tobytes())
        if any(other != mine for other in self._world.gather_words(mine)):
            raise ValueError(
                f"the workers' samplers draw epoch {epoch} differently; permitted: the same order on all workers. "
                "Before it draws, the job seeds Python's, NumPy's and torch's generators and the sampler's attribute "
                "`generator`; one that draws from another generator must seed it by the epoch, in set_epoch(epoch)"
            )

    @property
    def differs(self) -> str:
        return differs_at_ends(len(self._fetcher.dataset))

    def ends(self) -> Ends | None:
        """None: they cannot be had."""
        size = len(self._fetcher.dataset)
        try:
            four = self._pool.collect(self._pool.request(self._replica.epoch, [0, size - 1] * 2))
            once, again = (Beginning.of([self._fetcher.cut(four, first, first + 2)]) for first in (0, 2))
            return Ends(once, once == again, self._options.collate_fn is None)
        except Exception:  # whoever trains on them will hear of it
            return None

    def has_other_ends(self, before: Ends) -> bool:
        """Samples that are another whenever they are asked for say nothing, nor do batches of another kind."""
        now = self.ends() if before.stays and before.plain == (self._options.collate_fn is None) else None
        return now is not None and now.stays and now.samples != before.samples

    def _request(self, epoch: int, positions: Sequence[int]) -> None:
        """Asks for what is not there yet of these positions."""
        known = self._chunks.setdefault(epoch, {})
        missing = self._there(epoch, positions)
        if known:
            missing = [position for position in missing if position not in known]
        if missing and missing[-1] - missing[0] + 1 == len(missing):
            missing = range(missing[0], missing[-1] + 1)
        length = len(missing)
        if self._options.num_workers > 0:
            length = min(-(-length // self._options.num_workers), 32)
        for start in range(0, len(missing), max(length, 1)):
            some = missing[start : start + length]
            chunk = _Chunk(some, self._pool.request(epoch, self._lookup_samples(epoch, some)))
            known.update(dict.fromkeys(some, chunk))

    def _drop_before(self, epoch: int, position: int) -> None:
        for number, known in list(self._chunks.items()):
            for chunk in dict.fromkeys(known.values()):
                if number < epoch or (number == epoch and chunk.positions[-1] < position):
                    self._forget(number, chunk)
            if not known:
                del self._chunks[number]
        self._skipped = {number: positions for number, positions in self._skipped.items() if number >= epoch}


def size_of(dataset: Any, options: LoaderOptions) -> int:
    """Samples of an epoch, before the last batch drops some."""
    return len(dataset if options.sampler is None else options.sampler)  # type: ignore[arg-type]


def is_stream(dataset: Any) -> bool:
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
