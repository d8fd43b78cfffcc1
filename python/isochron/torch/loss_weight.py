"""The factor that makes unequal shares exact, which sees the losses that it is multiplied with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class LossWeight(float):
    """A float, also when a number scales it. torch hands products of it and a tensor to __torch_function__: a tensor of
    a single number is a loss, and one of several that have gradients are losses, which the loop takes the mean of."""

    _see: Callable[[torch.Tensor], None]

    def __new__(cls, value: float, see: Callable[[torch.Tensor], None]) -> LossWeight:
        weight = super().__new__(cls, value)
        weight._see = see
        return weight

    def _scaled(self, factor: float) -> LossWeight:
        return LossWeight(float(self) * factor, lambda loss: self._see(loss * factor))

    def __mul__(self, other: Any) -> Any:
        return self._scaled(other) if isinstance(other, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._scaled(1.0 / other) if isinstance(other, (int, float)) else NotImplemented

    def __reduce__(self) -> Any:
        return float, (float(self),)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        if function in _PRODUCTS:
            weight = next(one for one in arguments if isinstance(one, LossWeight))
            for one in arguments:
                if isinstance(one, torch.Tensor) and (one.numel() == 1 or (one.requires_grad and one.numel() > 1)):
                    weight._see(one.detach().mean() if one.dim() > 0 else one.detach().clone())
        plain = [float(one) if isinstance(one, LossWeight) else one for one in arguments]
        return function(*plain, **(keywords or {}))


_PRODUCTS = {
    torch.mul, torch.multiply, torch.Tensor.mul, torch.Tensor.mul_, torch.Tensor.multiply, torch.Tensor.__mul__,
    torch.Tensor.__rmul__, torch.Tensor.__imul__,
}  # fmt: skip
