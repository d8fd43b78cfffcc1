"""Samples of unequal length, dealt by cost (isochron/lengths.py): job.dataset(samples, lengths=...).

Samples are a nest of RaggedTensors and arrays with one entry a sample, anything with len() and [number] whose samples
are nests of arrays, or a tf.data.Dataset of single samples, whose lengths are found as they arrive. Components whose
first dimension differs from sample to sample are filled up with zeros to the longest of a worker's share ("padded"), or
become RaggedTensors ("packed").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from isochron import lengths as shared
from isochron.tensorflow import data


class _Joining:
    """Makes batches of samples; `ragged` says which of their components are sequences."""

    _packed: bool

    def _join_all(self, ragged: Any, first: Any, items: Sequence[Any]) -> Any:
        """Where there are no samples, `first` says what one would look like."""
        if not items:
            return tf.nest.map_structure(self._nothing, ragged, first)
        return tf.nest.map_structure(self._join, ragged, *items)

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


class SequenceSource(_Joining, data.Numbered):
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
        some = [self.sample(number) for number in range(min(self._size, 64))]
        self._first = some[0]
        self._ragged = tf.nest.map_structure(_is_sequence, *some)
        self.signature = tf.nest.map_structure(self._spec, self._ragged, self._first)
        self.lengths = self._read_lengths(lengths)

    def size(self) -> int:
        return self._size

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del epoch, positions
        return self._join_all(self._ragged, self._first, [self.sample(number) for number in samples()])

    def lengths_of(self, positions: Sequence[int], samples: Callable[[], Sequence[int]]) -> np.ndarray:
        del positions
        found: np.ndarray = self.lengths[samples()]
        return found

    def sample(self, number: int) -> Any:
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
        return [shared.of_sample(self.sample(number), name) for number in range(self._size)]


class PipelineSource(_Joining, data.StreamSource):
    """A tf.data.Dataset of single samples of unequal length, in its own order, of which every worker reads all."""

    def __init__(self, dataset: tf.data.Dataset, lengths: Any, collate: str, keep: int) -> None:
        if not (callable(lengths) or isinstance(lengths, str)):
            raise ValueError(
                f"lengths of a tf.data.Dataset are of type {type(lengths).__name__}; permitted: a function of a "
                "sample, or the name of an entry of the samples, since they come in its own order"
            )
        self._length_of = lengths
        self._packed = collate == "packed"
        self._epoch_read, self._first_read = 0, 0
        self._read_lengths = np.zeros(0)  # of the step under way
        super().__init__(dataset, keep)

    def _take_form(self, spec: Any) -> None:
        flat = tf.nest.flatten(spec)
        for one in flat:
            shape = one.shape if isinstance(one, (tf.TensorSpec, tf.RaggedTensorSpec)) else tf.TensorShape(None)
            if shape.rank is None or not shape[1:].is_fully_defined():
                raise ValueError(
                    f"a tf.data.Dataset of {one} with lengths; permitted: tensors of which the first dimension alone "
                    "differs from sample to sample")  # fmt: skip
        ragged = [one.shape.rank > 0 and one.shape[0] is None for one in flat]
        first = [np.zeros([size or 1 for size in one.shape], one.dtype.as_numpy_dtype) for one in flat]
        self._ragged, self._sample_form = (tf.nest.pack_sequence_as(spec, some) for some in (ragged, first))
        self.signature = tf.nest.map_structure(self._spec, self._ragged, self._sample_form)

    def read_lengths(self, epoch: int, first: int, last: int) -> np.ndarray:
        """The lengths of the samples of a step, which are read now."""
        self._epoch_read, self._first_read = epoch, first
        found = shared.as_they_arrive(self._items(epoch, first, last), self._length_of)
        self._read_lengths = np.array(found, np.float64)
        return self._read_lengths.copy()

    def lengths_of(self, positions: Sequence[int], samples: Callable[[], Sequence[int]]) -> np.ndarray:
        del samples
        found: np.ndarray = self._read_lengths[np.asarray(positions, np.int64) - self._first_read]
        return found

    def take_positions(self, positions: Sequence[int]) -> Any:
        """A worker's share of the step whose lengths were read."""
        last = self._first_read + len(self._read_lengths)
        items = self._items(self._epoch_read, self._first_read, last)
        return self._join_all(self._ragged, self._sample_form, [items[one - self._first_read] for one in positions])


def _is_sequence(*values: np.ndarray) -> bool:
    """Some are longer than others."""
    return values[0].ndim > 0 and len({value.shape[0] for value in values}) > 1
