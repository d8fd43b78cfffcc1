"""Samples of unequal length, dealt by cost (isochron/lengths.py): job.dataset(samples, lengths=...).

Samples are a nest of RaggedTensors and arrays with one entry a sample, or anything with len() and [number] whose
samples are nests of arrays. Components whose first dimension differs from sample to sample are filled up with zeros to
the longest of a worker's share ("padded"), or become RaggedTensors ("packed").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from isochron import lengths as shared
from isochron.tensorflow import data

if TYPE_CHECKING:
    from isochron.tensorflow.options import JobOptions


class SequenceSource:
    def __init__(self, samples: Any, lengths: Any, collate: str) -> None:
        self._samples = samples
        self._columns = isinstance(samples, (tuple, dict, np.ndarray, tf.Tensor, tf.RaggedTensor))
        if self._columns:
            columns = tf.nest.flatten(samples, expand_composites=False)
            counts = {int(column.shape[0]) for column in columns}
            if len(counts) != 1:
                raise ValueError(f"the arrays have {sorted(counts)} samples; permitted: as many in each")
            self._size = counts.pop()
        else:
            self._size = len(samples)
        self._packed = collate == "packed"
        some = [self._sample(number) for number in range(min(self._size, 64))]
        self._first = some[0]
        self._ragged = tf.nest.map_structure(_is_sequence, *some)
        self.signature = tf.nest.map_structure(self._spec, self._ragged, self._first)
        self.lengths = self._read_lengths(lengths)

    def size(self) -> int:
        return self._size

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del epoch, positions
        items = [self._sample(number) for number in samples()]
        if not items:
            return tf.nest.map_structure(self._nothing, self._ragged, self._first)
        return tf.nest.map_structure(self._join, self._ragged, *items)

    def _sample(self, number: int) -> Any:
        if not self._columns:
            return tf.nest.map_structure(np.asarray, self._samples[number])
        return tf.nest.map_structure(lambda column: np.asarray(column[number]), self._samples)

    def _read_lengths(self, lengths: Any) -> np.ndarray:
        if callable(lengths):
            lengths = [lengths(number) for number in range(self._size)]
        elif isinstance(lengths, str):
            lengths = self._entry(lengths)
        found = np.asarray(lengths, np.float64)
        if found.shape != (self._size,):
            what = f"{len(found)} numbers" if found.ndim == 1 else f"an array of {found.ndim} dimensions"
            raise ValueError(f"lengths are {what}; permitted: one for each of the dataset's {self._size} samples")
        bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
        if len(bad):
            raise ValueError(
                f"the length of sample {bad[0]} is {found[bad[0]]}; permitted: a finite number, 0 or more")  # fmt: skip
        return found

    def _entry(self, name: str) -> list[float]:
        return [shared.of_sample(self._sample(number), name) for number in range(self._size)]

    def _spec(self, ragged: bool, value: np.ndarray) -> Any:
        if not ragged:
            return tf.TensorSpec((None, *value.shape), value.dtype)
        shape = (None, None, *value.shape[1:])
        if self._packed:
            return tf.RaggedTensorSpec(shape, value.dtype, ragged_rank=1)
        return tf.TensorSpec(shape, value.dtype)

    def _join(self, ragged: bool, *values: np.ndarray) -> Any:
        if not ragged:
            return np.stack(values)
        counts = [len(value) for value in values]
        if self._packed:
            return tf.RaggedTensor.from_row_lengths(np.concatenate(values), counts)
        filled = np.zeros((len(values), max(counts), *values[0].shape[1:]), values[0].dtype)
        for row, value in zip(filled, values, strict=True):
            row[: len(value)] = value
        return filled

    def _nothing(self, ragged: bool, value: np.ndarray) -> Any:
        """A batch of no samples; long enough for a stand-in."""
        if ragged and self._packed:
            return tf.RaggedTensor.from_row_lengths(np.zeros((0, *value.shape[1:]), value.dtype), np.zeros(0, np.int64))
        return np.zeros((0, 1, *value.shape[1:]) if ragged else (0, *value.shape), value.dtype)


def _is_sequence(*values: np.ndarray) -> bool:
    """Some are longer than others."""
    return values[0].ndim > 0 and len({value.shape[0] for value in values}) > 1


class HandsOut:
    """What a job does to say whose samples are whose."""

    options: JobOptions
    rank: Any  # properties of the job
    size: Any
    _replica: Any
    _plan: Any
    _source: Any
    _samples: Any
    _dataset_name: str
    _hand_out: Callable[[], Iterator[Any]]
    _counts_lengths = False  # losses are means over them
    _items: float | None = None  # what this worker's loss of the step under way is the mean over; None: samples

    def dataset(
        self, samples: Any, *, lengths: Any = None, cost: Any = "linear", collate: str = "padded",
        count: str | None = None,
    ) -> tf.data.Dataset:  # fmt: skip
        """This worker's share of every global batch of `samples`; one pass over it is what is left of the epoch.
        `samples` are arrays, a tf.data.Dataset of single samples, or anything with len() and [number].

        With `lengths` (an array, a function of the sample's number, or the name of an entry of the samples) samples may
        be of unequal length, in RaggedTensors, too: every step is dealt by `cost`, and batches are "padded" with zeros
        or "packed", which are RaggedTensors. count="lengths": losses are means over what they count, such as tokens."""
        shared.check(lengths, cost, collate, count=count)
        if samples is not self._samples:
            self._source, self._samples = self._make_source(samples, lengths, collate), samples
        if isinstance(self._source, SequenceSource):
            works = shared.works_of(self._source.lengths.copy(), cost)
            self._replica.open_by_cost(np.ascontiguousarray(works, np.float32), collate)
            self._counts_lengths = count is not None
        else:
            self._replica.open(self._source.size())
        self._dataset_name = type(samples).__name__
        ragged = isinstance(self._source, SequenceSource) and collate == "packed"
        return data.batches(self._source.signature, self._hand_out, direct=not ragged)

    def _make_source(self, samples: Any, lengths: Any, collate: str) -> data.Source:
        if lengths is None:
            return data.make_source(samples, self.options.global_batch)
        if self.options.asynchronous:
            raise ValueError(f"lengths with sync '{self.options.sync}'; permitted: with sync 'bsp'")
        if isinstance(samples, tf.data.Dataset):
            raise ValueError("lengths of a tf.data.Dataset; permitted: of arrays, or of what has len() and [number]")
        return SequenceSource(samples, lengths, collate)

    def _numbers_of(self, rank: int) -> list[int]:
        """The worker's samples of the step under way."""
        sampler = self._replica.sampler
        if not self._replica.by_cost:
            return list(sampler.samples(*self._plan.slices[rank]))
        return [sampler.samples(position, position + 1)[0] for position in self._plan.positions(rank)]

    def _share_of_step(self) -> float:
        """What this worker's mean loss counts for in that of all."""
        share: float = self._plan.loss_weight / self.size
        if not self._counts_lengths:
            return share
        each = [float(self._source.lengths[self._numbers_of(rank)].sum()) for rank in range(self.size)]
        self._items = each[self.rank]
        return share if self.options.weighting == "mean" else self._items / sum(each)
