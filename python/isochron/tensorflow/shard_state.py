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
    """Local: this worker's chunks go on from what `whole` has learned in `steps` updates."""
    slots = _slots(whole, parameters)
    for chunk, updater in zip(parameters.layout.chunks_on(rank), updaters, strict=True):
        strips = {name: parameters.strip(chunk.strip, values) for name, values in slots.items()}
        updater.go_on(steps, {name: strip[chunk.first : chunk.last] for name, strip in strips.items()})


def gather(
    whole: keras.optimizers.Optimizer,
    parameters: Parameters,
    updaters: Sequence[SliceUpdater],
    rank: int,
    total: Callable[[np.ndarray], np.ndarray],
) -> None:
    """`whole` learns what all chunks have. `total` adds up over the workers: collective."""
    slots = _slots(whole, parameters)
    layout = parameters.layout
    held = list(zip(layout.chunks_on(rank), updaters, strict=True))
    for number, strip in enumerate(layout.strips):
        for name, targets in slots.items():
            values = np.zeros(strip.elements)
            for chunk, updater in held:
                if chunk.strip == number:
                    values[chunk.first : chunk.last] = updater.learned[name]
            values = total(values)
            for slot, target in zip(layout.slots, targets, strict=True):
                if slot.strip == number:
                    target.assign(values[slot.first : slot.last].reshape(target.shape))


def _slots(whole: keras.optimizers.Optimizer, parameters: Parameters) -> dict[str, list[Any]]:
    """In the order of the parameters."""
    places = [whole._get_variable_index(variable) for variable in parameters.variables]
    return {name: [values[place] for place in places]
            for name, values in slots_of(whole, len(places)).items()}  # fmt: skip
