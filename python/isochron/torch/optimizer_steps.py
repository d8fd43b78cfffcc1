"""Steps of optimizers within one step of the job, where it has several: the critic's and the generator's of a GAN.

If a worker is lost between them, the step is computed again. What the parameters have of it already is left out then:
the optimizer finds no gradient. All workers have the same number of them in their parameters, since who has fewer takes
over the parameters of one that has most (recovery.py); and running statistics go on from behind the last of them.
"""

from __future__ import annotations

from typing import Any

from isochron.torch.finite import drop_gradients
from isochron.torch.parallel import Models


class OptimizerSteps:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._kept = 0  # that the parameters had when this attempt at the step began
        self._count = 0  # in this attempt, those that were left out among them

    @property
    def taken(self) -> int:
        """How many of the step the parameters have."""
        return max(self._kept, self._count)

    def before(self, optimizer: Any) -> None:
        if self._count < self._kept:
            drop_gradients(optimizer)

    def after(self, another: bool) -> None:
        """`another` may follow."""
        self._count += 1
        if self._count == self._kept:
            self._models.go_on_from_between()
        elif another:
            self._models.remember_between()

    def begin_again(self, kept: int | None = None) -> None:
        """An attempt at the same step; `kept`: in the parameters, if they were taken over."""
        self._kept, self._count = self.taken if kept is None else kept, 0

    def end(self) -> None:
        """The step is over."""
        self._kept = self._count = 0
