"""The learning-rate factor on top of what the optimizer is set to, for the time of a step."""

from __future__ import annotations

from typing import Any


class LearningRate:
    def __init__(self) -> None:
        self._applied: list[tuple[dict[str, Any], Any, Any]] = []

    def apply(self, optimizers: list[Any], factor: float) -> None:
        self.restore()  # a step that was begun and dealt again
        if factor == 1.0:
            return
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                base = group["lr"]
                group["lr"] = base * factor
                self._applied.append((group, base, group["lr"]))

    def restore(self) -> None:
        """Leaves alone what a scheduler has changed meanwhile."""
        for group, base, applied in self._applied:
            if group["lr"] is applied:
                group["lr"] = base
        self._applied = []
