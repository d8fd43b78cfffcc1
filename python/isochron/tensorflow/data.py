"""Where samples come from, and this worker's share of every global batch as a tf.data.Dataset.

The share is decided when it is asked for, so nothing may run ahead: the dataset has no prefetching, and says so if
somebody adds it. What is slow belongs before it: a tf.data source may shuffle, decode and prefetch samples as it likes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf


class Source(Protocol):
    """A source of single samples, in nests of arrays."""

    signature: Any  # nest of tf.TensorSpec of a batch

    def size(self) -> int: ...

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        """The batch of the samples at `positions` of the epoch's order; `samples` gives their numbers."""


class ArraySource:
    """Arrays or tensors, or a nest of them, whose first dimension counts the samples."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = tf.nest.map_structure(np.asarray, arrays)
        lengths = {len(array) for array in tf.nest.flatten(self._arrays)}
        if len(lengths) != 1:
            raise ValueError(f"the arrays have {sorted(lengths)} samples; permitted: as many in each")
        self.signature = tf.nest.map_structure(
            lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype), self._arrays)  # fmt: skip

    def size(self) -> int:
        return len(tf.nest.flatten(self._arrays)[0])

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del epoch, positions
        numbers = np.asarray(samples(), np.int64)
        return tf.nest.map_structure(lambda array: array[numbers], self._arrays)


class MapSource:
    """Anything with len() and [number], such as a list of samples or a torch-style dataset."""

    def __init__(self, items: Any) -> None:
        self._items = items
        first = tf.nest.map_structure(np.asarray, items[0])
        self._empty = tf.nest.map_structure(lambda value: np.empty((0, *value.shape), value.dtype), first)
        self.signature = tf.nest.map_structure(
            lambda value: tf.TensorSpec((None, *value.shape), value.dtype), first)  # fmt: skip

    def size(self) -> int:
        return len(self._items)

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del epoch, positions
        items = [self._items[number] for number in samples()]
        return _stack(items) if items else self._empty


class StreamSource:
    """A tf.data.Dataset of single samples, the same sequence on every worker. Its order is the order of the epoch; who
    wants another in each shuffles it with a seed and reshuffle_each_iteration. Every worker reads all of it and keeps
    its share."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        self._size = int(dataset.cardinality())
        if self._size < 1:
            raise ValueError("a tf.data.Dataset of unknown or endless size; give it one: assert_cardinality(samples)")
        tf.nest.map_structure(_check_spec, dataset.element_spec)
        self.signature = tf.nest.map_structure(
            lambda spec: tf.TensorSpec((None, *spec.shape), spec.dtype), dataset.element_spec)  # fmt: skip
        self._empty = tf.nest.map_structure(
            lambda spec: np.empty((0, *spec.shape), spec.dtype.as_numpy_dtype), dataset.element_spec)  # fmt: skip
        self._reading: Iterator[Any] = iter(())
        self._epoch, self._next = -1, 0

    def size(self) -> int:
        return self._size

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del samples
        first, last = positions
        if epoch != self._epoch or first < self._next:
            self._reading, self._epoch, self._next = self._dataset.as_numpy_iterator(), epoch, 0
        items = list(itertools.islice(self._reading, first - self._next, last - self._next))
        if len(items) != last - first:
            raise ValueError(f"the dataset ended after fewer than the {self._size} samples it announced")
        self._next = last
        return _stack(items) if items else self._empty


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, tf.TensorSpec):
        raise ValueError(
            f"a tf.data.Dataset of {type(spec).__name__.removesuffix('Spec')}s; permitted: dense tensors, all samples "
            "of one shape: map(lambda x: x.to_tensor(shape=...)) pads ragged ones"
        )
    if not spec.shape.is_fully_defined():
        raise ValueError(
            f"a tf.data.Dataset of tensors of shape {spec.shape}; permitted: single samples of a known shape: "
            "unbatch() batches, pad samples of several lengths, or tell the shape with tf.ensure_shape"
        )


def _stack(items: Sequence[Any]) -> Any:
    return tf.nest.map_structure(lambda *values: np.stack(values), *items)


def make_source(data: Any) -> Source:
    if isinstance(data, tf.data.Dataset):
        return StreamSource(data)
    if isinstance(data, (tuple, dict, np.ndarray, tf.Tensor)):
        return ArraySource(data)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return MapSource(data)
    raise ValueError(
        f"a dataset of type {type(data).__name__}; permitted: a tuple or dict of arrays, a tf.data.Dataset of single "
        "samples, or anything with len() and [number]"
    )


def batches(signature: Any, take: Callable[[], Iterator[Any]]) -> tf.data.Dataset:
    """What `take` yields, each when it is asked for and not before."""
    dataset = tf.data.Dataset.from_generator(take, output_signature=signature)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)
