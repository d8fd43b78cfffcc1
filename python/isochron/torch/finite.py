"""Whether gradients are finite."""

from __future__ import annotations

import math
from typing import Any

import torch


def all_finite(gradients: list[torch.Tensor]) -> bool:
    """A norm is finite unless something in it is not, or it overflows; then every element is looked at."""
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for gradient in gradients:
        by_device.setdefault(gradient.device, []).append(gradient)
    for part in by_device.values():
        total = torch.stack(torch._foreach_norm(part)).sum()  # one wait for the device
        if not math.isfinite(total.item()) and not all(bool(one.isfinite().all()) for one in part):
            return False
    return True


def gradients_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What this worker holds of them."""
    gradients = []
    for group in optimizer.param_groups:
        for gradient in (parameter.grad for parameter in group["params"] if parameter.grad is not None):
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            gradients.append(local._values() if local.is_sparse else local)
    return gradients


def drop_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Its step has nothing to do then."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


class OwnGradients:
    """Looks at this worker's gradients before they are averaged: in a step that is computed again to find the worker
    whose gradient is not finite. A hook on a parameter runs before that of the model's wrapper."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self.finite = True
        self._hooks: list[Any] = [one.register_post_accumulate_grad_hook(self._look) for one in parameters]

    def _look(self, parameter: torch.Tensor) -> None:
        self.finite = self.finite and (parameter.grad is None or bool(parameter.grad.isfinite().all()))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
