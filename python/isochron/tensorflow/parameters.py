"""The trained variables of a model as they lie in the strips of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from isochron._core import ParameterLayout, lay_out


class Parameters:
    """`groups` of variables whose updates follow the same settings."""

    def __init__(self, groups: Sequence[Sequence[Any]], shards: int) -> None:
        self.variables = [variable for group in groups for variable in group]
        self._places = {id(variable.value): place for place, variable in enumerate(self.variables)}
        kinds = [[(str(one.dtype), _dtype(one).itemsize, int(np.prod(one.shape))) for one in group] for group in groups]
        self.layout: ParameterLayout = lay_out(kinds, shards)

    def strip(self, number: int, values: Sequence[Any]) -> np.ndarray:
        """The strip whose parts are `values`, in the order of the variables; those of other strips do not matter."""
        slots = zip(values, self.layout.slots, strict=True)
        return np.concatenate([np.asarray(value).reshape(-1) for value, slot in slots if slot.strip == number])

    def take(self, strips: Sequence[np.ndarray]) -> None:
        """What was pulled."""
        for variable, values in zip(self.variables, self._views(strips), strict=True):
            variable.assign(values)

    def put(self, gradients: Sequence[tf.Tensor], variables: Sequence[Any], strips: Sequence[np.ndarray]) -> None:
        """What is pushed: a variable without a gradient counts as one whose gradient is 0."""
        views = self._views(strips)
        given = [False] * len(views)
        for gradient, variable in zip(gradients, variables, strict=True):
            place = self._places.get(id(getattr(variable, "value", variable)))
            if place is None:
                raise ValueError(
                    f"a gradient of {variable.name}, which was not among the model's trainable variables at the first "
                    "batch; permitted: those that it had then"
                )
            views[place][...] = gradient.numpy()
            given[place] = True
        for view, is_given in zip(views, given, strict=True):
            if not is_given:
                view[...] = 0

    def _views(self, strips: Sequence[np.ndarray]) -> list[np.ndarray]:
        views = []
        for variable, slot in zip(self.variables, self.layout.slots, strict=True):
            dtype = _dtype(variable)
            part = strips[slot.strip][slot.first * dtype.itemsize : slot.last * dtype.itemsize]
            views.append(part.view(dtype).reshape(variable.shape))
        return views


def _dtype(variable: Any) -> np.dtype:
    return np.dtype(tf.as_dtype(variable.dtype).as_numpy_dtype)
