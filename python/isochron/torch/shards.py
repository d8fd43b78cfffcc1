"""Streams in parts, of which every worker reads its own: files of a WebDataset, shards of a Hugging Face dataset.

Who needs samples is dealt the next part that nobody has, and who has several loader processes one for each of them:
their samples are taken in turn. Before every step the workers tell each other in one small exchange how many samples
each has for it and from which parts, so all know what was used of every part: that is what a checkpoint holds, and what
those that are left go on from when a worker is lost. Towards the end of an epoch, when no part is left to deal, steps
are smaller than the global batch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from torch.utils.data import default_collate

from isochron._core import Replica, StepPlan, mix_key
from isochron.errors import Error
from isochron.options import SharedOptions
from isochron.torch.source import LoaderOptions, Share
from isochron.torch.streams import CHUNK, count_parts, read_stream, require_whole
from isochron.torch.world import World

MOST_SNAPSHOTS = 256


class Shards:
    """`parts` are whatever `read` takes, such as paths or numbers; `read(part)` gives that part's samples, in the same
    order whoever calls it. Have several times as many parts as workers.

        read = lambda path: wds.WebDataset(path, shardshuffle=False, nodesplitter=None).decode().to_tuple("jpg", "cls")
        job.loader(Shards(paths, read))  # without a nodesplitter: the job deals the files
        job.loader(Shards.of(datasets.load_dataset(..., streaming=True)))
    """

    def __init__(self, parts: Sequence[Any], read: Callable[[Any], Iterable[Any]]) -> None:
        self.parts = list(parts)
        self.read = read
        if not self.parts:
            raise ValueError("Shards has 0 parts; permitted: 1 or more")

    def is_like(self, other: Shards) -> bool:
        """Whether the parts are the same, as far as they can be compared: of objects that know no equality, only
        their class is."""
        return len(self.parts) == len(other.parts) and all(map(_is_same_part, self.parts, other.parts))

    @staticmethod
    def of(dataset: Any) -> Shards:
        """A streaming dataset of Hugging Face's datasets, whole: not what split_dataset_by_node() returns."""
        require_whole(dataset)
        count = count_parts(dataset)
        if count == 0:
            kind = type(dataset).__name__
            raise ValueError(f"Shards.of() got a {kind}; permitted: a dataset with num_shards, shard()")
        return Shards(range(count), lambda number: dataset.shard(num_shards=count, index=number))

    def __iter__(self) -> Iterator[Any]:
        """All samples, part after part."""
        return (sample for part in self.parts for sample in self.read(part))


def _is_same_part(mine: Any, theirs: Any) -> bool:
    if mine is theirs or type(mine) is not type(theirs):
        return mine is theirs
    if type(mine).__eq__ is object.__eq__:
        return True
    try:
        return bool(mine == theirs)
    except (TypeError, ValueError, RuntimeError):  # arrays, whose equality is an array
        return True


@dataclass
class _Progress:
    """What is used of an epoch's parts; the same on all workers."""

    used: dict[int, int] = field(default_factory=dict)  # samples, by part
    done: set[int] = field(default_factory=set)

    def copy(self) -> _Progress:
        return _Progress(dict(self.used), set(self.done))


@dataclass
class _Offer:
    """What a worker has for the coming step."""

    samples: list[tuple[int, int]]  # parts and how many of each, in order
    ended: list[int]  # parts that have no more behind those
    wants: int
    idle: bool  # whether it has a loader process without a part

    @staticmethod
    def read(told: Any) -> _Offer:
        """Raises Error if that is none."""
        try:
            offer = _Offer([(int(part), int(count)) for part, count in told["samples"]], list(map(int, told["ended"])),
                           int(told["wants"]), bool(told["idle"]))  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"a worker offered parts of a stream in words that cannot be read ({error!r})") from error
        return offer

    @property
    def count(self) -> int:
        return sum(count for _, count in self.samples)


class ShardSource:
    samples_per_epoch = 0  # unknown
    differs = ", whose parts are others than those of"

    def __init__(
        self, shards: Shards, options: LoaderOptions, replica: Replica, job: SharedOptions, world: World
    ) -> None:
        if job.last_batch == "drop":
            raise ValueError("last_batch is 'drop' with Shards; permitted: keep")
        replica.open_stream()
        self.follow(shards, options)
        self._replica = replica
        self._world = world
        self._seed = job.seed
        self._progress = _Progress()
        self._snapshots: dict[tuple[int, int], _Progress] = {(0, 0): _Progress()}
        self._place = (-1, -1)  # epoch and position of the step that was dealt last
        self._members: list[Any] = []
        self._waiting: deque[int] = deque()  # parts that nobody reads
        self._reading: deque[tuple[int, Iterator[Any]]] = deque()  # mine
        self._ready: deque[tuple[int, Any]] = deque()  # (part, sample), not used yet
        self._ended: set[int] = set()  # parts of mine that were read to their end
        self._offers: list[_Offer] = []

    def follow(self, shards: Shards, options: LoaderOptions) -> None:
        """From now on parts are read from another object of the same data; what is used of them stays."""
        self._shards = shards
        self._options = options
        self._collate = options.collate_fn or default_collate

    @property
    def steps_per_epoch(self) -> int:
        raise TypeError("the stream has no length, so nobody knows the number of its steps")

    @property
    def position(self) -> int:
        return self._replica.position

    def left(self, most: int) -> int:
        raise ValueError("accumulate() with Shards, whose end nobody knows; permitted: a larger global_batch")

    def take(self) -> Share | None:
        self._find_place()
        self._offers = self._gather()
        counts = [min(offer.count, offer.wants) for offer in self._offers]
        if sum(counts) == 0:
            return None
        plan = self._replica.plan_parts(counts)
        mine = [sample for _, sample in islice(self._ready, counts[self._replica.rank])]
        batch = self._collate(mine or self._some())
        return Share(plan, counts, batch, stand_in=not mine)

    def plan_again(self, plan: StepPlan) -> None:
        self._replica.plan_parts(plan.batches)

    def skipped_between(self, first: int, last: int) -> int:
        return 0

    def ends(self) -> None:
        """Shards with other parts are other data already (Shards.is_like)."""

    def has_other_ends(self, before: Any) -> bool:
        return False

    def close(self) -> None:
        self._reading.clear()

    def state(self) -> dict[str, Any]:
        """Between two steps."""
        self._note_step()
        one = self._snapshots.get((self._replica.epoch, self._replica.position), _Progress())
        return {"used": sorted(one.used.items()), "done": sorted(one.done)}

    def load(self, saved: dict[str, Any]) -> None:
        progress = _Progress({part: count for part, count in saved["used"]}, set(saved["done"]))
        self._snapshots = {(self._replica.epoch, self._replica.position): progress}
        self._place = (-1, -1)

    def _some(self) -> list[Any]:
        """Two samples that count for nothing, or one."""
        for part in self._shards.parts:
            if samples := list(islice(self._shards.read(part), 2)):
                return samples
        raise Error("no part of the stream has a sample")

    # Where it is.

    def _find_place(self) -> None:
        """The replica may have gone on, back or elsewhere since the last step, and workers may be lost."""
        self._note_step()
        place = self._replica.epoch, self._replica.position
        if place == self._place and self._members == self._world.members:
            return
        if place[1] == 0:
            self._snapshots.setdefault(place, _Progress())
        if place not in self._snapshots:
            raise Error(f"position {place[1]} of epoch {place[0]} of the stream is not known any more")
        self._progress = self._snapshots[place].copy()
        self._place, self._members = place, list(self._world.members)
        order = list(range(len(self._shards.parts)))
        random.Random(mix_key([self._seed, place[0]])).shuffle(order)
        begun = [part for part in order if self._progress.used.get(part, 0) > 0]
        fresh = [part for part in order if part not in self._progress.used]
        self._waiting = deque(part for part in (*begun, *fresh) if part not in self._progress.done)
        self._reading.clear()
        self._ready.clear()
        self._ended.clear()
        self._offers = []

    def _note_step(self) -> None:
        """If the step that was dealt last is done, its samples are used."""
        epoch, position = self._place
        counts = [min(offer.count, offer.wants) for offer in self._offers]
        if not counts or (self._replica.epoch, self._replica.position) != (epoch, position + sum(counts)):
            return
        for offer, left in zip(self._offers, counts, strict=True):
            for part, count in offer.samples:
                taken = min(count, left)
                left -= taken
                self._progress.used[part] = self._progress.used.get(part, 0) + taken
                if taken == count and part in offer.ended:
                    self._progress.done.add(part)
        for _ in range(counts[self._replica.rank]):
            self._ready.popleft()
        self._offers = []
        self._place = epoch, position + sum(counts)
        self._snapshots[self._place] = self._progress.copy()
        while len(self._snapshots) > MOST_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]

    # Reading.

    def _gather(self) -> list[_Offer]:
        """Everybody's, when all have what they want and their loader processes have parts, or no part is left."""
        while True:
            offers = [_Offer.read(one) for one in self._world.gather_words(asdict(self._offer()))]
            lacking = [rank for rank, offer in enumerate(offers) if offer.count < offer.wants]
            idle = [rank for rank, offer in enumerate(offers) if offer.idle and rank not in lacking]
            if not self._waiting or not (lacking or idle):
                return offers
            for rank in (*lacking, *idle):
                if self._waiting:
                    part = self._waiting.popleft()
                    if rank == self._replica.rank:
                        self._reading.append((part, self._open(part)))

    def _offer(self) -> _Offer:
        wants = self._replica.decision.batch_sizes[self._replica.rank]
        while len(self._ready) < wants and self._reading:
            part, samples = self._reading[0]
            new = list(islice(samples, min(wants - len(self._ready), CHUNK)))
            self._ready.extend((part, sample) for sample in new)
            if not new:
                self._ended.add(part)
                self._reading.popleft()
            else:
                self._reading.rotate(-1)  # the next process's turn
        counts: dict[int, int] = {}
        for part, _ in islice(self._ready, wants):
            counts[part] = counts.get(part, 0) + 1
        behind = {part for part, _ in islice(self._ready, wants, None)}
        ended = [part for part in counts if part in self._ended - behind]
        idle = wants > 0 and len(self._reading) < self._options.num_workers
        return _Offer(list(counts.items()), ended, wants, idle)

    def _open(self, part: int) -> Iterator[Any]:
        stream = self._shards.read(self._shards.parts[part])
        key = [self._seed, self._place[0], part]
        samples = read_stream(stream, self._options, self._options.num_workers > 0, key)
        return islice(samples, self._progress.used.get(part, 0), None)
