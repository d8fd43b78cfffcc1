"""This worker's samples of an iterable dataset."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from isochron._core import Replica, StepPlan, mix_key
from isochron.lengths import as_they_arrive, learns_squares
from isochron.options import SharedOptions
from isochron.other_data import STREAM_DIFFERS
from isochron.torch.beginnings import Beginning
from isochron.torch.lengths import works_of
from isochron.torch.pool import Draws, seed_everything
from isochron.torch.source import LoaderOptions, Share
from isochron.torch.world import World

log = logging.getLogger("isochron")

CHUNK = 16  # samples that are read at a time
_told_of_parts: WeakSet[World] = WeakSet()  # by the jobs of these


class ChunkedStream(IterableDataset):
    """A stream in chunks. Python's, NumPy's and torch's generators are seeded by `key` and the chunk's number before it
    is read, and are as before behind it: what a stream draws, for its order or to augment its samples, is the same on
    all workers, in a loader process or none, and after a resume."""

    def __init__(self, stream: Any, key: list[int]) -> None:
        self._stream = stream
        self._key = key

    def __iter__(self) -> Iterator[list[Any]]:
        torch.utils.data._utils.worker._worker_info = None  # a stream that asks draws as it does without a process
        samples: Iterator[Any] | None = None
        for turn in itertools.count():
            before = Draws()
            seed_everything(mix_key([*self._key, turn]))
            try:
                samples = iter(self._stream) if samples is None else samples
                chunk = list(islice(samples, CHUNK))
            finally:
                before.undo()
            if not chunk:
                return
            yield chunk


def require_whole(dataset: Any) -> None:
    """Raises ValueError for what split_dataset_by_node() of Hugging Face's datasets returns."""
    if getattr(dataset, "_distributed", None) is not None:
        raise ValueError("the dataset was split by node; permitted: the whole one, which the job deals")


def count_parts(dataset: Any) -> int:
    """Of a streaming dataset of Hugging Face's, or one like it; 0: it cannot be read in parts."""
    parts = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", 0)
    return int(parts) if parts and hasattr(dataset, "shard") else 0


def _as_it_is(sample: Any) -> Any:
    return sample


def read_stream(stream: Any, options: LoaderOptions, ahead: bool, key: list[int]) -> Iterator[Any]:
    """Its samples in their order, read `ahead` by a process or when they are asked for; `key` is for what it draws."""
    if not ahead:
        return itertools.chain.from_iterable(ChunkedStream(stream, key))
    chunks = DataLoader(
        ChunkedStream(stream, key), batch_size=None, collate_fn=_as_it_is, num_workers=1,
        worker_init_fn=options.worker_init_fn, multiprocessing_context=options.multiprocessing_context,
    )  # fmt: skip
    return itertools.chain.from_iterable(iter(chunks))  # the process begins at once


class StreamSource:
    """Samples of an iterable dataset, which come in one order, the same on all workers: each reads all of them and
    keeps its share. So every sample is used once, without a word between the workers; that reading costs each of them
    the whole stream is the price (shards.py has streams of which each reads a part). One loader process reads it ahead:
    a second one would have to read all of it, too."""

    samples_per_epoch = 0  # unknown
    differs = STREAM_DIFFERS

    def __init__(
        self, dataset: Any, options: LoaderOptions, replica: Replica, job: SharedOptions, world: World
    ) -> None:
        require_whole(dataset)
        self._deals_by_cost = options.lengths is not None
        if self._deals_by_cost:
            if not (callable(options.lengths) or isinstance(options.lengths, str)):
                permitted = "permitted: a function of a sample, or the name of an entry of the samples"
                raise ValueError(f"lengths of a stream are {options.lengths!r}; {permitted}")
            replica.open_arriving(options.collate, learns_squares=learns_squares(options.cost))
        else:
            replica.open_stream()
        self._replica = replica
        self._dataset = dataset
        self._options = options
        if options.num_workers > 1 and replica.rank == 0:
            log.warning(
                "num_workers is %d for a stream, which one process of every worker reads, since each further one would "
                "read all of it again; Shards are for streams of which each process reads a part",
                options.num_workers,
            )
        parts = 0 if self._deals_by_cost else count_parts(dataset)
        if parts > 1 and world.size > 1 and replica.rank == 0 and world not in _told_of_parts:
            _told_of_parts.add(world)
            log.warning(
                "the stream has %d parts, of which every worker reads all; with job.loader(Shards.of(dataset)) each is "
                "read by one",
                parts,
            )
        self._world = world
        self._seed = job.seed
        self._global_batch = job.global_batch
        self._drop = job.last_batch == "drop"  # what does not fill a step at the end
        self._collate = options.collate_fn or default_collate
        self._stream: Iterator[Any] | None = None
        self._taken: list[Any] = []  # for the step under way, which may have to be dealt again
        self._ahead: deque[Any] = deque()  # read already, for later steps
        self._place = (-1, -1)  # their epoch, and the position of the first
        self._warned = False
        self._begun: tuple[int, Beginning] | None = None  # the epoch that was begun first, and with what

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

    def left(self, most: int) -> int:
        """Samples of this epoch that no finished step has used, as far as `most`; reads them."""
        self._read()
        assert self._stream is not None
        self._ahead.extend(islice(self._stream, max(most - len(self._taken) - len(self._ahead), 0)))
        left = len(self._taken) + len(self._ahead)
        return left - left % self._global_batch if self._drop and left < most else left

    def take(self) -> Share | None:
        """None: the epoch is over."""
        self._read()
        if self._replica.position == 0:
            self._compare_beginnings()
        size = len(self._taken)
        if size == 0 or (size < self._global_batch and self._drop):
            return None
        lengths = self._lengths()
        plan = self._plan()
        mine = [index - plan.position for index in plan.positions(self._replica.rank)]
        batch = self._collate([self._taken[index] for index in mine] or self._taken[:2])
        share = Share(plan, plan.batches, batch, stand_in=not mine)
        if lengths is None:
            return share
        everybody = float(lengths.sum()) if self._options.count is not None else None
        return replace(share, items=float(lengths[mine].sum()), all_items=everybody)

    def _plan(self) -> StepPlan:
        if (lengths := self._lengths()) is None:
            return self._replica.plan(len(self._taken))
        works: Any = works_of(lengths, self._options.cost)  # any array will do
        return self._replica.plan_arrived(works)

    def _lengths(self) -> torch.Tensor | None:
        """The lengths of the step's samples, where they deal it; all workers find the same."""
        if not self._deals_by_cost:
            return None
        return torch.tensor(as_they_arrive(self._taken, self._options.lengths), dtype=torch.float64)

    def _read(self) -> None:
        """The samples at the replica's place, which may have gone on, back or elsewhere since the last step."""
        place = self._replica.epoch, self._replica.position
        if self._stream is not None and place == self._place:
            return
        epoch, position = self._place
        if self._stream is None or place != (epoch, position + len(self._taken)):
            self._stream = self._open()
            self._ahead.clear()
        self._ahead.extend(islice(self._stream, max(self._global_batch - len(self._ahead), 0)))
        self._taken = [self._ahead.popleft() for _ in range(min(self._global_batch, len(self._ahead)))]
        self._place = place

    def _compare_beginnings(self) -> None:
        """Before the first step of an epoch, whether it is dealt for the first time or again."""
        beginning = Beginning.of(self._taken[:CHUNK])
        self._begun = self._begun or (self._replica.epoch, beginning)
        mine, *others = [Beginning.read(one) for one in self._world.gather_words(asdict(beginning))]
        if all(other.is_like(mine) for other in others):
            return
        epoch = self._replica.epoch
        stays = self._is_read_once() or self._beginning(epoch).is_like(beginning)
        if not all(self._world.gather_words(stays)):
            self._judge_draws(all(other.has_samples_of(mine) for other in others))
        else:
            raise ValueError(
                f"the workers' streams begin epoch {epoch} with different samples; permitted: the same "
                "ones in the same order on all workers, which is the whole stream, not a part of it by rank or node, "
                "shuffled by a seed; Shards are for streams of which each worker reads a part"
            )

    def _judge_draws(self, harmless: bool) -> None:
        """The stream is another one whenever a worker reads it. That is no harm to which samples are used if they are
        the same ones, in the same order."""
        why = "a worker's stream is another one whenever it is read: it draws from a generator that nobody seeds"
        if not harmless:
            raise ValueError(
                f"{why}, and whether the samples are the same on all workers cannot be seen; permitted: to draw from "
                "Python's, NumPy's and torch's own generators, which the job seeds, or from one that set_epoch(epoch) "
                "seeds"
            )
        if not self._warned and self._replica.rank == 0:
            log.warning("%s; training goes on, with other draws on every worker and after a resume", why)
        self._warned = True

    def ends(self) -> tuple[int, Beginning] | None:
        """An epoch and what it begins with; None: the stream can be read once only, so that nobody may look."""
        epoch = self._replica.epoch
        return self._begun or (None if self._is_read_once() else (epoch, self._beginning(epoch)))

    def has_other_ends(self, before: tuple[int, Beginning]) -> bool:
        """Whether that epoch begins with other samples here. A stream that begins anew whenever it is read says
        nothing."""
        epoch, beginning = before
        if self._is_read_once() or (now := self._beginning(epoch)).is_like(beginning):
            return False
        return now.is_like(self._beginning(epoch))

    def _is_read_once(self) -> bool:
        return iter(self._dataset) is iter(self._dataset)

    def _beginning(self, epoch: int) -> Beginning:
        return Beginning.of(islice(self._samples(epoch, ahead=False), CHUNK))

    def plan_again(self, plan: StepPlan) -> None:
        self._plan()

    def skipped_between(self, first: int, last: int) -> int:
        return 0

    def close(self) -> None:
        self._stream = None

    def _open(self) -> Iterator[Any]:
        return islice(self._samples(self._replica.epoch, self._options.num_workers > 0), self.position, None)

    def _samples(self, epoch: int, ahead: bool) -> Iterator[Any]:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        return read_stream(self._dataset, self._options, ahead, [self._seed, epoch])
