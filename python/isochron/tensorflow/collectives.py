"""Sums over the workers, on the collectives of tf.distribute.MultiWorkerMirroredStrategy.

The strategy serves as transport alone: models, optimizers and datasets live outside of its scope, where Keras does not
scale losses by the number of replicas and datasets do not run ahead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from isochron.tensorflow import coordination
from isochron.tensorflow.cluster import Cluster

# TensorFlow joins other processes once in the life of this one, so later jobs use the same connections.
_joined: dict[Cluster, tf.distribute.Strategy] = {}


class Collectives:
    """Must be made before TensorFlow runs its first operation; that is when it learns of the other processes."""

    def __init__(self, cluster: Cluster, timeout: float) -> None:
        self.rank, self.size = cluster.index, cluster.size
        self._options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
        self.strategy = self._join(cluster)
        if self.strategy.num_replicas_in_sync != self.size:
            raise ValueError(
                f"{self.strategy.num_replicas_in_sync} devices in {self.size} processes; permitted: one each "
                "(start a process per GPU and set CUDA_VISIBLE_DEVICES)"
            )
        self._sum_numbers = tf.function(
            lambda numbers: self.all_reduce([numbers])[0], input_signature=[tf.TensorSpec([None], tf.float64)]
        )

    def _join(self, cluster: Cluster) -> tf.distribute.Strategy:
        if cluster.size == 1:
            return tf.distribute.get_strategy()
        if cluster in _joined:
            return _joined[cluster]
        os.environ["TF_CONFIG"] = cluster.tf_config()
        try:
            coordination.configure(cluster.size, self._options.timeout_seconds)
            with coordination.naming_who_is_missing(cluster):
                _joined[cluster] = tf.distribute.MultiWorkerMirroredStrategy(communication_options=self._options)
            return _joined[cluster]
        except RuntimeError as error:
            if "program startup" not in str(error):
                raise
            raise RuntimeError("make the isochron Job before anything else of TensorFlow's") from error

    @tf.autograph.experimental.do_not_convert
    def all_reduce(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums, inside a tf.function; one message per element type. All workers must call in the same order."""
        if self.size == 1:
            return [tf.identity(tensor) for tensor in tensors]
        sums: dict[int, tf.Tensor] = {}
        for dtype in sorted({tensor.dtype.name for tensor in tensors}):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype.name == dtype]
            reduced = self.strategy.run(self._in_replica, args=tuple(tensors[place] for place in places))
            sums.update(zip(places, reduced, strict=True))
        return [sums[place] for place in range(len(tensors))]

    @tf.autograph.experimental.do_not_convert
    def _in_replica(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        here = [tf.identity(tensor) for tensor in tensors]  # the strategy asks for the device they are on
        return context.all_reduce(tf.distribute.ReduceOp.SUM, here, options=self._options)

    def row(self, values: tf.Tensor) -> tf.Tensor:
        """[size, len(values)] with `values` in this worker's row: what a sum over the workers gathers exactly."""
        mine = tf.one_hot(self.rank, self.size, dtype=values.dtype)
        return tf.where(tf.expand_dims(mine, 1) > 0, tf.expand_dims(values, 0), tf.zeros([], values.dtype))

    def sum(self, numbers: Sequence[float] | np.ndarray) -> np.ndarray:
        """Between two steps; of the same number of values on all workers."""
        return self._sum_numbers(tf.constant(np.asarray(numbers, np.float64))).numpy()

    def gather(self, value: Any) -> list[Any]:
        """What every worker gives, in their order; anything that JSON can hold. Between two steps."""
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = self.sum([len(text) * (rank == self.rank) for rank in range(self.size)]).astype(int)
        rows = np.zeros((self.size, int(lengths.max())))
        rows[self.rank, : len(text)] = text
        rows = self.sum(rows.reshape(-1)).reshape(rows.shape).astype(np.uint8)
        return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def broadcast(self, variables: Sequence[Any]) -> None:
        """Gives all workers the values that the first one has."""
        if self.size == 1 or not variables:
            return
        given = [_as_number(variable) for variable in variables]
        if self.rank != 0:
            given = [tf.zeros_like(value) for value in given]
        for variable, value in zip(variables, tf.function(self.all_reduce)(given), strict=True):
            variable.assign(tf.cast(value, variable.dtype))


def _as_number(variable: Any) -> tf.Tensor:
    """In a type that can be added up without loss."""
    value = tf.convert_to_tensor(variable)
    return value if value.dtype in (tf.float32, tf.float64, tf.int32, tf.int64) else tf.cast(value, _wider(value.dtype))


def _wider(dtype: tf.DType) -> tf.DType:
    return tf.float32 if dtype.is_floating else tf.int64
