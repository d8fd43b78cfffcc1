"""What the shards' optimizers have learned, in the form of the user's one and back, so that what is saved does not
depend on how a job trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from isochron.tensorflow.parameters import Parameters
from isochron.tensorflow.shard_optimizer import SliceUpdater, slots_of


def spread(
    whole: keras.optimizers.Optimizer, parameters: Parameters, updaters: Sequence[SliceUpdater], rank: int, steps: int
) -> None:
    """Local: this worker's slices go on from what `whole` has learned in `steps` updates."""
    slots = _slots(whole, parameters)
    for number, updater in enumerate(updaters):
        first, last = parameters.layout.slice_of(number, rank)
        strips = {name: parameters.strip(number, values) for name, values in slots.items()}
        updater.go_on(steps, {name: strip[first:last] for name, strip in strips.items()})


def gather(
    whole: keras.optimizers.Optimizer,
    parameters: Parameters,
    updaters: Sequence[SliceUpdater],
    rank: int,
    total: Callable[[np.ndarray], np.ndarray],
) -> None:
    """`whole` learns what all slices have. `total` adds up over the workers: collective."""
    slots = _slots(whole, parameters)
    layout = parameters.layout
    for number, updater in enumerate(updaters):
        first, last = layout.slice_of(number, rank)
        for name, learned in updater.learned.items():
            strip = np.zeros(layout.strips[number].elements)
            strip[first:last] = learned
            strip = total(strip)
            for slot, target in zip(layout.slots, slots[name], strict=True):
                if slot.strip == number:
                    target.assign(strip[slot.first : slot.last].reshape(target.shape))


def _slots(whole: keras.optimizers.Optimizer, parameters: Parameters) -> dict[str, list[Any]]:
    """In the order of the parameters."""
    places = [whole._get_variable_index(variable) for variable in parameters.variables]
    return {name: [values[place] for place in places]
            for name, values in slots_of(whole, len(places)).items()}  # fmt: skip
