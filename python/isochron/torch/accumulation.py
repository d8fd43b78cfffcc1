"""Several steps of the loader to one of the optimizer.

The steps of a group count together: the optimizer sees the mean over all their samples. A worker's gradients of the
earlier ones are not with the others yet, so a failure takes the whole group back to its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isochron.torch.datasets import Source


@dataclass
class Group:
    steps: int = 1  # n of accumulate(n)
    done: int = 0  # of them
    samples: int = 0  # of all workers in all steps of the group; 0: not begun
    counted: float = 0.0  # this worker's count= so far
    counts: bool = False  # count= was given
    finite: bool = True  # this worker's losses so far
    beginning: bytes = b""  # the replica's state before the first of several steps

    @property
    def begun(self) -> bool:
        return self.done > 0

    def begin(self, steps: int, batch: int, source: Source) -> None:
        self.steps = steps
        positions = source.left(steps * batch)
        self.samples = positions - source.skipped_between(source.position, source.position + positions)

    def is_last(self, step_size: int, left: int) -> bool:
        return self.done + 1 >= self.steps or step_size >= left

    def end(self) -> None:
        self.__init__()  # type: ignore[misc]
