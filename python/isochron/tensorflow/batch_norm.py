"""BatchNormalization over the global batch, exact for shares of any size, none included.

Keras' own `synchronized=True` works only inside a strategy's replica, and takes the variance as E[x^2] - E[x]^2, which
loses all digits where the mean is large. Here every worker sends count, mean and sum of squared deviations of its share
in one message, and all combine them in the same order (Chan, Golub, LeVeque 1979). The layers stay Keras' own: saved
models need nothing of isochron.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from isochron.tensorflow.collectives import Collectives


class GlobalMoments:
    """Mean and variance over all workers' shares.

    `weight` is the variable with this worker's share of the global batch. Gradients of local means are weighted by it
    only after the backward pass, so what goes to the others inside that pass is weighted here, and unweighted on
    arrival. `waited` adds up the seconds in the exchanges, which are no work of this worker, and counts the exchanges.
    """

    def __init__(self, collectives: Collectives, weight: tf.Variable) -> None:
        self._collectives = collectives
        self._weight = weight
        self.waited = tf.Variable([0.0, 0.0], dtype=tf.float64, trainable=False, name="isochron_waited")
        self._layers: list[keras.layers.BatchNormalization] = []

    @property
    def in_use(self) -> bool:
        return bool(self._layers)

    def take_over(self, layer: keras.layers.BatchNormalization) -> bool:
        """Makes `layer` use the global batch when it trains; False if it does already."""
        if any(layer is known for known in self._layers):
            return False
        if getattr(layer, "renorm", False):
            raise ValueError(f"the layer '{layer.name}' has renorm=True; permitted: BatchNormalization without renorm")
        stock = type(layer).call

        def call(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
            if not training or not layer.trainable:
                return stock(layer, inputs, training=training, mask=mask)
            return _normalize(layer, tf.convert_to_tensor(inputs), mask, self)

        layer.call = call
        self._layers.append(layer)
        return True

    def take_waited(self) -> tuple[float, int]:
        """Seconds and exchanges since it was last asked."""
        if not self._layers:
            return 0.0, 0
        seconds, exchanges = self.waited.numpy()
        if exchanges:
            self.waited.assign([0.0, 0.0])
        return float(seconds), int(exchanges)

    def undo(self) -> None:
        for layer in self._layers:
            del layer.call
        self._layers.clear()

    def moments(self, inputs: tf.Tensor, axes: list[int], mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        ones = tf.ones_like(inputs) if mask is None else _weights_of(mask, inputs)
        ones *= tf.cast(self._weight > 0, inputs.dtype)  # nor does the stand-in for an empty share count
        count = tf.reduce_sum(ones, axes, keepdims=True)
        mean = tf.math.divide_no_nan(tf.reduce_sum(inputs * ones, axes, keepdims=True), count)
        spread = tf.reduce_sum(tf.square(inputs - mean) * ones, axes, keepdims=True)
        share = tf.stack([tf.reshape(count, [-1]), tf.reshape(mean, [-1]), tf.reshape(spread, [-1])])
        counts, means, spreads = tf.unstack(self._gather(share), axis=1)  # each [workers, channels]
        total = tf.reduce_sum(counts, 0)
        mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), total)
        spread = tf.reduce_sum(spreads + counts * tf.square(means - mean), 0)
        return mean, tf.math.divide_no_nan(spread, total)

    def _gather(self, share: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def gather(mine: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            rank = self._collectives.rank

            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                weight = tf.cast(self._weight, upstream.dtype)
                # Nothing of an empty share counts, whatever it came out as.
                weighted = tf.where(weight > 0, upstream * weight, tf.zeros_like(upstream))
                return tf.math.divide_no_nan(self._sum(weighted)[rank], weight)

            row = tf.expand_dims(tf.one_hot(rank, self._collectives.size, dtype=mine.dtype), [1])
            return self._sum(tf.expand_dims(row, 2) * tf.expand_dims(mine, 0)), gradient

        return gather(share)

    def _sum(self, values: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([values]):
            before = tf.timestamp()
        with tf.control_dependencies([before]):
            total = self._collectives.all_reduce([tf.identity(values)])[0]
        with tf.control_dependencies([total]):
            after = tf.timestamp()
        with tf.control_dependencies([self.waited.assign_add([after - before, 1.0])]):
            return tf.identity(total)


def _weights_of(mask: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
    return tf.broadcast_to(tf.cast(tf.expand_dims(mask, -1), inputs.dtype), tf.shape(inputs))


def batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    return [layer for layer in layers_of(model) if isinstance(layer, keras.layers.BatchNormalization)]


def layers_of(model: keras.Model) -> Iterable[keras.layers.Layer]:
    """All of them, at any depth. Keras has no public way to those inside of other layers."""
    return model._flatten_layers(include_self=True, recursive=True)


def _normalize(
    layer: keras.layers.BatchNormalization, inputs: tf.Tensor, mask: tf.Tensor | None, moments: GlobalMoments
) -> tf.Tensor:
    """What Keras does in training mode, with our moments."""
    inputs = tf.cast(inputs, keras.backend.result_type(inputs.dtype.name, "float32"))
    axis = layer.axis % len(inputs.shape)
    axes = [dimension for dimension in range(len(inputs.shape)) if dimension != axis]
    mean, variance = moments.moments(inputs, axes, mask)
    for moving, new in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        old = tf.cast(moving.value, new.dtype)
        moving.assign(old * layer.momentum + new * (1.0 - layer.momentum))
    outputs = keras.ops.batch_normalization(
        inputs,
        mean=mean,
        variance=variance,
        axis=axis,
        offset=tf.cast(layer.beta.value, inputs.dtype) if layer.center else None,
        scale=tf.cast(layer.gamma.value, inputs.dtype) if layer.scale else None,
        epsilon=layer.epsilon,
    )
    return tf.cast(outputs, layer.compute_dtype)
