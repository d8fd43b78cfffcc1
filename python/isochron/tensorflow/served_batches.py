"""What job.dataset() is when workers are not in step: batches one after the other, in the thread that asks for them.

A tf.data.Dataset would ask for them in a thread of its own, where the barrier at the end of an epoch, with TensorFlow's
collectives, could wait for a thread that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class ServedBatches:
    """One pass over it is what is left of the epoch."""

    def __init__(self, element_spec: Any, take: Callable[[], Iterator[Any]]) -> None:
        self.element_spec = element_spec
        self._take = take

    def __iter__(self) -> Iterator[Any]:
        for batch in self._take():
            yield tf.nest.map_structure(lambda spec, value: tf.convert_to_tensor(value, spec.dtype),
                                        self.element_spec, batch)  # fmt: skip
