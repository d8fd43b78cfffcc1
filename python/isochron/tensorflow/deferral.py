"""Keeps an optimizer from applying gradients inside a step, and notes them instead.

The user's step function, or Keras' train_step, runs as it is up to optimizer.apply(); what it wanted to apply leaves
the graph, is added up over the workers, and is then applied by the optimizer's own apply(). So clipping, accumulation,
loss scaling, weight decay and averages inside the optimizer see the gradient of the global batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


class DeferredApply:
    """Takes the place of `optimizer.apply`; apply_gradients() comes here, too."""

    def __init__(self, optimizer: keras.optimizers.Optimizer) -> None:
        self.optimizer = optimizer
        self._noted: list[tuple[list[Any], list[Any]]] | None = None
        optimizer.apply = self

    def __call__(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        if self._noted is None:
            raise RuntimeError(
                "the optimizer of a job was asked to apply gradients outside of a step: put @job.step before the "
                "function that does it, in place of @tf.function"
            )
        if trainable_variables is None:
            raise ValueError("optimizer.apply(gradients) in a job's step; permitted: apply(gradients, variables)")
        self._noted.append((list(grads), list(trainable_variables)))

    @contextlib.contextmanager
    def noting(self) -> Iterator[list[tuple[list[Any], list[Any]]]]:
        self._noted = []
        try:
            yield self._noted
        finally:
            self._noted = None

    def apply(self, gradients: Sequence[tf.Tensor], variables: Sequence[Any]) -> None:
        """What the optimizer does by itself."""
        type(self.optimizer).apply(self.optimizer, list(gradients), list(variables))

    def undo(self) -> None:
        del self.optimizer.apply


def only_noted(noted: Sequence[tuple[list[Any], list[Any]]]) -> tuple[list[tf.Tensor], list[Any]]:
    """Gradients and variables of a step that applied once; variables without a gradient are left out."""
    if len(noted) != 1:
        raise ValueError(
            f"the step applies gradients {len(noted)} times; permitted: once (an update that a later part of the same "
            "step builds on cannot wait for the other workers)"
        )
    pairs = [(gradient, variable) for gradient, variable in zip(*noted[0], strict=True) if gradient is not None]
    if not pairs:
        raise ValueError("no variable has a gradient; does the loss depend on the model?")
    return [tf.convert_to_tensor(gradient) for gradient, _ in pairs], [variable for _, variable in pairs]
