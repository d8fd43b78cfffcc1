"""Where samples come from, and this worker's share of every global batch as a tf.data.Dataset.

The share is decided when it is asked for, so nothing may run ahead: the dataset has no prefetching, and says so if
somebody adds it. What is slow belongs before it: a tf.data source may shuffle, decode and prefetch samples as it likes.
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from isochron.other_data import STREAM_DIFFERS, differs_at_ends

_BEGINNING = 16  # samples of an epoch, by which workers know that they read the same sequence
PADDED = "pad samples of several lengths to one, with tf.pad() and then tf.ensure_shape() in map()"


class Source(Protocol):
    """A source of single samples, in nests of arrays."""

    signature: Any  # nest of tf.TensorSpec of a batch

    def size(self) -> int: ...

    def ends(self) -> int | None:
        """A digest of its first and its last sample, or of how it begins. None: it says nothing, since it is another
        one whenever it is asked for."""

    @property
    def differs(self) -> str:
        """What is said if that of other data is another one."""

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        """The batch of the samples at `positions` of the epoch's order; `samples` gives their numbers."""


class Numbered:
    """Samples by their numbers."""

    def size(self) -> int:
        raise NotImplementedError

    def sample(self, number: int) -> Any:
        raise NotImplementedError

    def ends(self) -> int | None:
        once, again = (_digest(self.sample(number) for number in (0, self.size() - 1)) for _ in range(2))
        return once if once == again else None

    @property
    def differs(self) -> str:
        return differs_at_ends(self.size())


class ArraySource(Numbered):
    """Arrays or tensors, or a nest of them, whose first dimension counts the samples."""

    def __init__(self, arrays: Any) -> None:
        for array in tf.nest.flatten(arrays, expand_composites=False):
            if isinstance(array, (tf.RaggedTensor, tf.SparseTensor)):
                raise ValueError(
                    f"samples in a {type(array).__name__}; permitted: dense arrays, of which to_tensor() and "
                    "tf.sparse.to_dense() make one"
                )
        self._arrays = tf.nest.map_structure(np.asarray, arrays)
        lengths = {len(array) for array in tf.nest.flatten(self._arrays)}
        if len(lengths) != 1:
            raise ValueError(f"the arrays have {sorted(lengths)} samples; permitted: as many in each")
        self.signature = tf.nest.map_structure(
            lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype), self._arrays)  # fmt: skip

    def size(self) -> int:
        return len(tf.nest.flatten(self._arrays)[0])

    def sample(self, number: int) -> Any:
        return tf.nest.map_structure(lambda array: array[number], self._arrays)

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del epoch, positions
        numbers = np.asarray(samples(), np.int64)
        return tf.nest.map_structure(lambda array: array[numbers], self._arrays)


class MapSource(Numbered):
    """Anything with len() and [number], such as a list of samples or a torch-style dataset."""

    def __init__(self, items: Any) -> None:
        self._items = items
        first = tf.nest.map_structure(np.asarray, items[0])
        self._empty = tf.nest.map_structure(lambda value: np.empty((0, *value.shape), value.dtype), first)
        self.signature = tf.nest.map_structure(
            lambda value: tf.TensorSpec((None, *value.shape), value.dtype), first)  # fmt: skip

    def size(self) -> int:
        return len(self._items)

    def sample(self, number: int) -> Any:
        return self._items[number]

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del epoch, positions
        items = [self._items[number] for number in samples()]
        return _stack(items) if items else self._empty


class StreamSource:
    """A tf.data.Dataset of single samples, the same sequence on every worker. Its order is the order of the epoch: that
    of its first iteration for epoch 0 and so on, so that a shuffle with a seed gives another order in each, also to a
    job that goes on from a checkpoint. Every worker reads all of it and keeps its share. What was read last is kept,
    `keep` samples at least, for a step that is dealt anew."""

    differs = STREAM_DIFFERS

    def __init__(self, dataset: tf.data.Dataset, keep: int) -> None:
        self._dataset = dataset
        self._size = int(dataset.cardinality())
        if self._size < 1:
            raise ValueError("a tf.data.Dataset of unknown or endless size; give it one: assert_cardinality(samples)")
        if _is_batched(dataset):
            raise ValueError("a tf.data.Dataset of batches; permitted: single samples, without batch() or by unbatch()")
        self._take_form(dataset.element_spec)
        self._reading: Iterator[Any] = iter(())
        self._last: deque[Any] = deque(maxlen=keep + _BEGINNING)  # that were read
        self._epoch, self._next = -1, 0
        self._iterations = 0
        self._beginnings: dict[int, int] = {}  # of epochs that were read: a digest each
        self._told = True

    def _take_form(self, spec: Any) -> None:
        tf.nest.map_structure(_check_spec, spec)
        self.signature = tf.nest.map_structure(lambda one: tf.TensorSpec((None, *one.shape), one.dtype), spec)
        self._empty = tf.nest.map_structure(lambda one: np.empty((0, *one.shape), one.dtype.as_numpy_dtype), spec)

    def size(self) -> int:
        return self._size

    def take(self, epoch: int, positions: tuple[int, int], samples: Callable[[], Sequence[int]]) -> Any:
        del samples
        items = self._items(epoch, *positions)
        return _stack(items) if items else self._empty

    def ends(self) -> int | None:
        """How it begins, where that is the same in every epoch: an order of its own says nothing of the samples."""
        begun = list(self._beginnings.values())
        while len(begun) < 2:
            begun.append(_digest(itertools.islice(self._dataset.as_numpy_iterator(), _BEGINNING)))
            self._iterations += 1
        return begun[0] if len(set(begun)) == 1 else None

    def follow(self, before: StreamSource) -> None:
        """It is the same dataset, which has been read as far."""
        for name in ("_reading", "_last", "_epoch", "_next", "_iterations", "_beginnings", "_told"):
            setattr(self, name, getattr(before, name))

    def _items(self, epoch: int, first: int, last: int) -> list[Any]:
        """The samples at these positions of the epoch."""
        if epoch != self._epoch or first < self._next - len(self._last):
            self._begin(epoch)
        self._read(last)
        start = first - (self._next - len(self._last))
        return list(itertools.islice(self._last, start, start + last - first))

    def new_beginning(self) -> int | None:
        """A digest of how the epoch begins, once: the same on all workers, or they read different sequences."""
        if self._told:
            return None
        self._told = True
        return self._beginnings[self._epoch]

    def _begin(self, epoch: int) -> None:
        """Iterations that a job has not made since it went on from a checkpoint count, too."""
        self._told = epoch == self._epoch
        for _ in range(max(epoch + 1 - self._iterations, 1)):
            self._reading = self._dataset.as_numpy_iterator()
            self._iterations += 1
        self._epoch, self._next = epoch, 0
        self._last.clear()
        self._read(min(self._size, _BEGINNING))
        beginning = _digest(self._last)
        if self._beginnings.setdefault(epoch, beginning) != beginning:
            raise ValueError(
                f"the tf.data.Dataset gives the samples of epoch {epoch} in another order when it is read again; "
                "permitted where a job goes back: shuffle(..., reshuffle_each_iteration=False)"
            )

    def _read(self, last: int) -> None:
        while self._next < last:
            try:
                self._last.append(next(self._reading))
            except StopIteration:
                raise ValueError(f"the dataset ended after fewer than the {self._size} samples it announced") from None
            self._next += 1


def _is_batched(dataset: tf.data.Dataset) -> bool:
    """Batches of a known size look like samples; what made them tells."""
    while type(dataset).__name__ in ("_PrefetchDataset", "_OptionsDataset"):
        (dataset,) = dataset._inputs()
    return type(dataset).__name__ in ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset")


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, tf.TensorSpec):
        raise ValueError(
            f"a tf.data.Dataset of {type(spec).__name__.removesuffix('Spec')}s; permitted: dense tensors, all samples "
            f"of one shape: {PADDED}"
        )
    if not spec.shape.is_fully_defined():
        raise ValueError(
            f"a tf.data.Dataset of tensors of shape {spec.shape}; permitted: single samples of a known shape: "
            f"unbatch() batches; {PADDED}"
        )


def _digest(items: Iterable[Any]) -> int:
    digest = 0
    for value in tf.nest.flatten(list(items)):
        array = np.asarray(value)
        digest = zlib.crc32(repr(array.tolist()).encode() if array.dtype == object else array.tobytes(), digest)
    return digest


def _stack(items: Sequence[Any]) -> Any:
    return tf.nest.map_structure(lambda *values: np.stack(values), *items)


def make_source(data: Any, keep: int) -> Source:
    """`keep`: the most samples that are taken at a time, or of a step that may be dealt anew."""
    if isinstance(data, tf.data.Dataset):
        return StreamSource(data, keep)
    if isinstance(data, (tuple, dict, np.ndarray, tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        return ArraySource(data)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return MapSource(data)
    raise ValueError(
        f"a dataset of type {type(data).__name__}; permitted: a tuple or dict of arrays, a tf.data.Dataset of single "
        "samples, or anything with len() and [number]"
    )


def batches(signature: Any, take: Callable[[], Iterator[Any]], direct: bool = False) -> tf.data.Dataset:
    """What `take` yields, each when it is asked for and not before; `direct`: to a loop without a detour. Keras'
    evaluate() needs an iterator of TensorFlow's."""
    dataset = tf.data.Dataset.from_generator(take, output_signature=signature)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(options)
    return _Batches(dataset, take) if direct else dataset


class _Batches(tf.data.Dataset):
    """A loop over it gets the batches from `take` itself. TensorFlow would ask for them in threads of its own and copy
    them twice, which costs a throttled worker milliseconds a step."""

    def __init__(self, dataset: tf.data.Dataset, take: Callable[[], Iterator[Any]]) -> None:
        self._dataset, self._take = dataset, take
        super().__init__(dataset._variant_tensor)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec

    def __iter__(self) -> Iterator[Any]:
        if tf.inside_function():
            return super().__iter__()
        specs = tf.nest.flatten(self.element_spec)
        return (
            tf.nest.pack_sequence_as(
                self.element_spec,
                [tf.convert_to_tensor(value, spec.dtype)
                 for value, spec in zip(tf.nest.flatten(batch), specs, strict=True)])
            for batch in self._take()
        )  # fmt: skip
