"""The datasets of a job, and whose samples are whose: each has its own place, ledger and log, and one of them is being
trained on.

A second one is a dataset() of other samples: for pre-training and fine-tuning, or for a curriculum. The replica holds
the place of the present one; the others' wait here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf

from isochron import _core
from isochron import lengths as shared
from isochron.other_data import refusal
from isochron.tensorflow import data
from isochron.tensorflow.sequences import PipelineSource, SequenceSource

if TYPE_CHECKING:
    from isochron.tensorflow.options import JobOptions
    from isochron.tensorflow.bookkeeping import Bookkeeping


@dataclass
class Data:
    """One dataset of a job."""

    number: int  # from 0, in the order of dataset()
    name: str | None
    samples: Any
    lengths: Any
    collate: str
    source: data.Source
    place: bytes | None = None  # while it is another one's turn

    def is_of(self, samples: Any, name: str | None, size: int) -> bool:
        """The same data: the object, or one that cannot be told from it."""
        if name is not None or self.name is not None:
            return name == self.name
        return type(samples) is type(self.samples) and size == self.source.size()

    def replace(self, samples: Any, lengths: Any, collate: str, source: data.Source) -> None:
        """By another object of the same data, or with other options. Raises ValueError for other samples."""
        if samples is self.samples:
            if isinstance(source, data.StreamSource) and isinstance(self.source, data.StreamSource):
                source.follow(self.source)
        elif self.name is None and (ends := self.source.ends()) is not None and source.ends() not in (None, ends):
            raise refusal("dataset()", samples, source.differs)
        self.samples, self.lengths, self.collate, self.source = samples, lengths, collate, source


class HandsOut:
    """What a job does to say whose samples are whose."""

    options: JobOptions
    rank: Any  # properties of the job
    size: Any
    epoch: Any
    step_number: Any
    _replica: Any
    _plan: Any
    _books: Bookkeeping
    _source: Any
    _fit: Any
    _stopping: bool
    _take_batch: Callable[[], Any]
    _abandon: Callable[[], None]
    _now: Callable[[], float]
    _cost: Any = "linear"
    _counts_lengths = False  # losses are means over them
    _items: float | None = None  # what this worker's loss of the step under way is the mean over; None: samples

    def __init__(self) -> None:
        self._datasets: list[Data] = []
        self._data: Data | None = None  # the one that it trains on
        self._saved_places: dict[int, bytes] = {}  # of datasets that a restored job has not been given yet
        self._dataset_name = ""
        self._data_error: BaseException | None = None

    def dataset(
        self, samples: Any, *, name: str | None = None, lengths: Any = None, cost: Any = "linear",
        collate: Literal["padded", "packed"] = "padded", count: Literal["lengths"] | None = None,
    ) -> tf.data.Dataset:  # fmt: skip
        """This worker's share of every global batch of `samples`; one pass over it is what is left of the epoch.
        `samples` are arrays, a tf.data.Dataset of single samples, or anything with len() and [number].

        Other data than before has an epoch, a ledger and a log of its own; so has data of the same type and size under
        another `name`, without which it is refused if its first or last sample differs. From here on the job's epoch is
        this dataset's.

        With `lengths` (an array, a function of the sample's number, or the name of an entry of the samples; of a
        tf.data.Dataset a function of a sample, or such a name) samples may be of unequal length, in RaggedTensors, too:
        every step is dealt by `cost`, and batches are "padded" with zeros or "packed", which are RaggedTensors.
        count="lengths": losses are means over what they count, such as tokens."""
        shared.check(lengths, cost, collate, count=count)
        one = self._data_of(samples, name, lengths, collate)
        source = one.source
        squares = shared.learns_squares(cost)
        if isinstance(source, SequenceSource):
            works = shared.works_of(source.lengths.copy(), cost)
            self._replica.open_by_cost(np.ascontiguousarray(works, np.float32), collate, learns_squares=squares)
        elif isinstance(source, PipelineSource):
            self._replica.open_arriving(collate, learns_squares=squares, dataset_size=source.size())
        else:
            self._replica.open(source.size())
        self._cost, self._counts_lengths = cost, count is not None
        ragged = lengths is not None and collate == "packed"
        return data.batches(source.signature, partial(self._hand_out, one), direct=not ragged)

    def _data_of(self, samples: Any, name: str | None, lengths: Any, collate: str) -> Data:
        """The one that these samples are, which is the present one now."""
        known = next((one for one in self._datasets if one.samples is samples and one.name == name), None)
        if known is None or known.lengths is not lengths or known.collate != collate:
            source = self._make_source(samples, lengths, collate)
            known = known or next((one for one in self._datasets if one.is_of(samples, name, source.size())), None)
            if known is None:
                if self._datasets and lengths is not None:
                    raise ValueError("a second dataset with lengths; permitted: one dataset, or without them")
                known = Data(len(self._datasets), name, samples, lengths, collate, source)
                known.place = self._saved_places.pop(known.number, None)
                self._select(known)
                self._datasets.append(known)
            known.replace(samples, lengths, collate, source)
        self._select(known)
        self._source, self._dataset_name = known.source, type(samples).__name__
        return known

    def _select(self, one: Data) -> None:
        """It is this one's turn."""
        if one is self._data:
            return
        if self._data is not None:
            if self._replica.phase != "between":
                raise RuntimeError(
                    "a batch of another dataset is out, whose step is not done; permitted: one dataset after the other"
                )
            self._data.place = self._replica.change_data(one.source.size(), one.place)
        self._data, self._source = one, one.source

    def end_epoch(self) -> None:
        """The rest of the epoch is not wanted: the next pass begins with the next one. All workers call it, between two
        steps; the log says so."""
        self._abandon()  # the batch at which the loop was left
        if self._replica.position > 0:
            self._replica.end_epoch()
            first = self._replica.workers[0].id
            self._books.write([_core.EventRecord(self.step_number, self._now(), _core.Event.EPOCH_END, first, "")])

    def _hand_out(self, one: Data) -> Iterator[Any]:
        self._select(one)
        epoch, step = self.epoch, -1
        self._data_error = None
        while self._data is one and self.epoch == epoch and not self._stopping:
            if self._replica.phase == "computing" and step == self.step_number:
                fitting = "" if self._fit is not None else (
                    "for model.fit() call job.compile(model, ...) in place of model.compile(...); in your own loop "
                )
                raise RuntimeError(
                    "a batch was asked for before the step with the one before it: the job's dataset cannot be read "
                    f"ahead; {fitting}do without prefetch(), parallel map() and the like after job.dataset()"
                )
            step = self.step_number
            try:
                batch = self._take_batch()
            except Exception as error:
                self._data_error = error  # TensorFlow passes on no more than its words
                raise
            yield batch

    def next_batch(self, iterator: Iterator[Any]) -> Any:
        """The next one of a pass over the dataset; errors are as they were."""
        try:
            return next(iterator)
        except tf.errors.OpError as error:
            if self._data_error is not None:
                raise self._data_error from error
            raise

    def save_places(self) -> tuple[bytes, dict[int, str]]:
        """The replica at the place of the first dataset, and where the others are. Between two steps."""
        present = self._data
        if present is not None:
            self._select(self._datasets[0])
        state: bytes = self._replica.state()
        places = {one.number: one.place.decode() for one in self._datasets[1:] if one.place is not None}
        if present is not None:
            self._select(present)
        return state, {**{number: place.decode() for number, place in self._saved_places.items()}, **places}

    def restore_places(self, state: bytes, places: dict[str, str]) -> None:
        """The present dataset stays the present one."""
        present = self._data
        if present is not None:
            self._select(self._datasets[0])
        self._replica.restore(state)
        self._saved_places = {int(number): place.encode() for number, place in places.items()}
        for one in self._datasets[1:]:
            one.place = self._saved_places.pop(one.number, None)
        if present is not None:
            self._select(present)

    def _make_source(self, samples: Any, lengths: Any, collate: str) -> data.Source:
        if lengths is None:
            return data.make_source(samples, self.options.global_batch)
        if self.options.asynchronous:
            raise ValueError(f"lengths with sync '{self.options.sync}'; permitted: with sync 'bsp'")
        if isinstance(samples, tf.data.Dataset):
            return PipelineSource(samples, lengths, collate, self.options.global_batch)
        return SequenceSource(samples, lengths, collate)

    def _plan_step(self) -> Any:
        """The replica's plan of the coming step."""
        if not isinstance(self._source, PipelineSource):
            return self._replica.plan()
        sampler = self._replica.sampler
        lengths = self._source.read_lengths(sampler.epoch, sampler.position, sampler.position + sampler.step_size)
        return self._replica.plan_arrived(np.ascontiguousarray(shared.works_of(lengths, self._cost), np.float32))

    def _take_share(self) -> Any:
        """This worker's batch of the step that is planned."""
        if isinstance(self._source, PipelineSource):
            return self._source.take_positions(self._plan.positions(self.rank))
        return self._source.take(
            self._replica.sampler.epoch, self._plan.mine, lambda: self._numbers_of(self.rank))  # fmt: skip

    def _numbers_of(self, rank: int) -> list[int]:
        """The worker's samples of the step under way."""
        sampler = self._replica.sampler
        if not self._replica.by_cost:
            return list(sampler.samples(*self._plan.slices[rank]))
        return [sampler.samples(position, position + 1)[0] for position in self._plan.positions(rank)]

    def _lengths_of(self, rank: int) -> np.ndarray:
        found: np.ndarray = self._source.lengths_of(self._plan.positions(rank), lambda: self._numbers_of(rank))
        return found

    def _share_of_step(self) -> float:
        """What this worker's mean loss counts for in that of all."""
        share: float = self._plan.loss_weight / self.size
        if not self._counts_lengths:
            return share
        each = [float(self._lengths_of(rank).sum()) for rank in range(self.size)]
        self._items = each[self.rank]
        return share if self.options.weighting == "mean" else self._items / sum(each)
