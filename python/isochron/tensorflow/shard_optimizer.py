"""The user's Keras optimizer, again, for one chunk of the parameters: what a shard moves its values with.

Only optimizers that treat every number by itself can be cut this way: an update of a chunk must not depend on the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from isochron._core import asynchronous_momentum

_ELEMENTWISE = (
    keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.Adamax,
    keras.optimizers.RMSprop, keras.optimizers.Adagrad, keras.optimizers.Adadelta, keras.optimizers.Lion,
    keras.optimizers.Ftrl,
)  # fmt: skip
# What looks at more than one number, or at more than one update.
_WHOLE = ("clipnorm", "global_clipnorm", "use_ema", "gradient_accumulation_steps")
_ALL_VARIABLES = ("_variables", "_trainable_variables")  # lists of an optimizer that are no slots


def check(optimizer: keras.optimizers.Optimizer, sync: str, momentum_correction: bool) -> None:
    """Raises ValueError for an optimizer that cannot be cut."""
    name = type(optimizer).__name__
    if type(optimizer) not in _ELEMENTWISE:
        permitted = ", ".join(kind.__name__ for kind in _ELEMENTWISE)
        raise ValueError(f"the optimizer is {name} with sync '{sync}'; permitted: {permitted}")
    for option in _WHOLE:
        value = getattr(optimizer, option)
        if value:
            raise ValueError(f"the optimizer's {option} is {value!r} with sync '{sync}'; permitted: with sync 'bsp'")
    if momentum_correction and type(optimizer) is not keras.optimizers.SGD:
        raise ValueError(f"momentum_correction is True with {name}; permitted: with SGD")


def check_variables(variables: Sequence[Any], sync: str) -> None:
    for variable in variables:
        if variable.constraint is not None:
            message = f"{variable.path} has a constraint with sync '{sync}'"
            raise ValueError(f"{message}; permitted: none, or sync 'bsp' (a slice does not know the rest of it)")


def by_decay(optimizer: keras.optimizers.Optimizer, variables: Sequence[Any]) -> list[list[Any]]:
    """Two groups: those that the optimizer's weight decay is for, and those that are excluded from it."""
    decayed = [optimizer.weight_decay is None or optimizer._use_weight_decay(one.value) for one in variables]
    return [[one for one, is_decayed in zip(variables, decayed, strict=True) if is_decayed == group]
            for group in (True, False)]  # fmt: skip


class SliceUpdater:
    """served.session.Updater with an optimizer of the same class and settings as `whole`, less its learning rate, which
    comes with every gradient. `corrected_for` so many asynchronous workers, which add momentum of their own; 0: not."""

    def __init__(
        self, whole: keras.optimizers.Optimizer, values: np.ndarray, *, decays: bool, corrected_for: int
    ) -> None:
        self.size = values.nbytes
        self._dtype = values.dtype
        self._sum = np.zeros(values.shape, np.promote_types(_native(values.dtype), np.float32))
        config = {**whole.get_config(), "learning_rate": 0.0, "name": "isochron_shard"}
        if not decays:
            config["weight_decay"] = None if config["weight_decay"] is None else 0.0
        if corrected_for > 0:
            config["momentum"] = asynchronous_momentum(config["momentum"], corrected_for)
        with _on_cpu():
            self._values = keras.Variable(values, dtype=tf.as_dtype(values.dtype).name, name="isochron_slice")
            self.optimizer = type(whole).from_config(config)
            self.optimizer.build([self._values])

    def read(self, into: np.ndarray) -> None:
        if self.size > 0:
            into[:] = _bytes_of(self._values.numpy())

    def add(self, gradient: np.ndarray, weight: float, first: bool) -> None:
        if first:
            self._sum[:] = 0
        if self.size > 0:
            self._sum += gradient.view(self._dtype).astype(self._sum.dtype) * weight

    def take_mean(self, weight: float) -> np.ndarray:
        return _bytes_of((self._sum / weight).astype(self._dtype))

    def step(self, gradient: np.ndarray, settings: dict[str, Any], factor: float) -> None:
        if self.size == 0:
            return
        with _on_cpu():
            self.optimizer.learning_rate = settings["learning_rate"] * factor
            # A copy, since TensorFlow may keep the caller's memory, which the next gradient overwrites.
            self.optimizer.apply([tf.constant(gradient.view(self._dtype).copy())], [self._values])

    @property
    def steps(self) -> int:
        return int(self.optimizer.iterations.numpy())

    def go_on(self, steps: int, slots: dict[str, np.ndarray]) -> None:
        """From what was learned before."""
        self.optimizer.iterations.assign(steps)
        for name, (slot,) in slots_of(self.optimizer, 1).items():
            slot.assign(slots[name])

    @property
    def learned(self) -> dict[str, np.ndarray]:
        return {name: slot.numpy() for name, (slot,) in slots_of(self.optimizer, 1).items()}


def slots_of(optimizer: keras.optimizers.Optimizer, variables: int) -> dict[str, list[Any]]:
    """What a built optimizer has learned of every one of its variables, in their order: by name."""
    found = {}
    for name, value in vars(optimizer).items():
        is_slot = name not in _ALL_VARIABLES and isinstance(value, (list, tuple)) and len(value) == variables
        if is_slot and all(isinstance(one, keras.Variable) for one in value):
            found[name] = list(value)
    return found


def _on_cpu() -> Any:
    return tf.device("CPU:0")


def _native(dtype: np.dtype) -> np.dtype:
    """bfloat16 is none of NumPy's own."""
    return dtype if dtype.kind == "f" else np.dtype(np.float32)


def _bytes_of(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8)
