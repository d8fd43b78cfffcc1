"""The datasets of a job: each has its own place, ledger and log, and one of them is being trained on.

A second one is a loader() with other data: for pre-training and fine-tuning, for a curriculum, or beside the first in
one step. The replica holds the place of the present one; the others' wait here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, default_collate

from isochron._core import Ledger, Replica, Sampler
from isochron.errors import Error
from isochron.options import SharedOptions
from isochron.torch.dealt import DealtSource
from isochron.torch.shards import Shards, ShardSource
from isochron.torch.source import HABITS, LoaderOptions, MapSource, is_stream, size_of
from isochron.torch.streams import StreamSource
from isochron.torch.trace import Trace
from isochron.torch.world import World

log = logging.getLogger("isochron")

Source = MapSource | StreamSource | ShardSource


def make_source(dataset: Any, options: LoaderOptions, replica: Replica, job: SharedOptions, world: World) -> Source:
    """Opens the replica, too."""
    check_lengths(dataset, options)
    if options.lengths is not None:
        if job.sync != "bsp":
            raise ValueError(f"lengths with sync '{job.sync}'; permitted: with sync 'bsp'")
        if is_stream(dataset):
            return StreamSource(dataset, options, replica, job, world)
        return DealtSource(dataset, options, replica, job, world)
    if isinstance(dataset, Shards):
        return ShardSource(dataset, options, replica, job, world)
    if is_stream(dataset):
        return StreamSource(dataset, options, replica, job, world)
    return MapSource(dataset, options, replica, job, world)


def check_lengths(dataset: Any, options: LoaderOptions) -> None:
    if options.lengths is not None and isinstance(dataset, Shards):
        raise ValueError("lengths of Shards, of which nobody reads all; permitted: of other datasets and streams")


def replica_size(dataset: Any, options: LoaderOptions) -> int:
    """As Replica.change_data() is told."""
    return 0 if is_stream(dataset) else size_of(dataset, options)


def take_over(loader: DataLoader[Any], drops_last: bool, warns: bool) -> tuple[Any, dict[str, Any]]:
    """Takes over a DataLoader: dataset, and what loader() would be told. Batches and their order are the job's."""
    batches: Any = loader.batch_sampler
    if batches is None:
        raise ValueError(
            "the DataLoader has batch_size=None, so that it hands on batches that its dataset has made, each of which "
            "would count as one sample; permitted: a dataset of samples without batches, given to loader() itself"
        )
    if type(batches).__name__ != "BatchSampler":
        raise ValueError(
            f"the DataLoader's batch_sampler is a {type(batches).__name__}; permitted: none, since the job deals; say "
            "sampler= for an order or a choice of one's own"
        )
    if batches.drop_last and not drops_last:
        raise ValueError("the DataLoader has drop_last=True; say last_batch='drop' to the Job, or leave it out")
    for name, usual in (("generator", None), ("timeout", 0)):
        if warns and (value := getattr(loader, name)) != usual:
            log.warning("%s=%r of the DataLoader is not taken over; %s", name, value, HABITS[name])
    told: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
    }
    if loader.collate_fn is not default_collate:
        told["collate_fn"] = loader.collate_fn
    if not is_stream(loader.dataset) and not _takes_each_once(batches.sampler, loader.dataset):
        told["sampler"] = batches.sampler  # DataLoader.sampler is not used beside a batch_sampler
    return loader.dataset, told


def _takes_each_once(sampler: Any, dataset: Any) -> bool:
    """An epoch of it is every sample of the dataset."""
    return (
        isinstance(sampler, (RandomSampler, SequentialSampler))
        and not getattr(sampler, "replacement", False)
        and len(sampler) == len(dataset)
    )


@dataclass
class Beside:
    """The place of a dataset whose batches come beside another one's, in the same steps: as many samples on every
    worker as the other dataset's, so that one weight is right for both. Epochs follow each other without a short
    step."""

    sampler: Sampler
    epoch: int = 0
    position: int = 0
    ledger: Ledger | None = None
    taken: tuple[int, ...] = ()  # by rank, in the step under way

    def parts(self, first: int, count: int) -> list[tuple[int, int, int]]:
        """Positions (epoch, first, last) of `count` samples, `first` after the present place."""
        size, parts = self.sampler.samples_per_epoch, []
        epoch, position = self.epoch, self.position + first
        while count > 0:
            epoch, position = epoch + position // size, position % size
            length = min(count, size - position)
            parts.append((epoch, position, position + length))
            position, count = position + length, count - length
        return parts

    def finish(self) -> None:
        """The step is done."""
        for rank, count in enumerate(self.taken):
            for epoch, first, last in self.parts(sum(self.taken[:rank]), count):
                if self.ledger is None or (first == 0 and self.ledger.used > 0):
                    if self.ledger is not None and not self.ledger.complete:
                        raise Error("an epoch used some sample twice or not at all")
                    self.ledger = Ledger(self.sampler.samples_per_epoch)
                self.ledger.stage(first, last, rank)
                self.ledger.commit()
        size = self.sampler.samples_per_epoch
        position = self.position + sum(self.taken)
        self.epoch, self.position = self.epoch + position // size, position % size
        self.taken = ()


@dataclass
class Data:
    """One dataset of a job."""

    number: int  # from 0, in the order of loader()
    name: str | None
    dataset: Any
    options: LoaderOptions
    source: Source
    trace: Trace
    place: bytes | None = None  # while it is another one's turn
    beside: Beside | None = None

    def is_of(self, dataset: Any, name: str | None) -> bool:
        """The same data: the object, or one that cannot be told from it."""
        if name is not None or self.name is not None:
            return name == self.name
        if dataset is self.dataset:
            return True
        if type(dataset) is not type(self.dataset):
            return False
        if isinstance(dataset, Shards):
            return dataset.is_like(self.dataset)
        if is_stream(dataset):
            return True
        return len(dataset) == len(self.dataset)
