"""The user's optimizer, again, for one chunk of the parameters: what a shard moves its values with.

Only optimizers that treat every number by itself can be cut this way: an update of a chunk must not depend on the rest.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from isochron._core import ParameterLayout, asynchronous_momentum
from isochron.errors import Error

_ELEMENTWISE = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.ASGD, torch.optim.Rprop,
)  # fmt: skip
_SCALARS = ("step", "eta", "mu", "mu_product")  # of what they learn; the rest is a number per number
# About how a step is computed, which is another matter on a shard's CPU.
_LOCAL = ("params", "fused", "foreach", "capturable", "differentiable")


def check(optimizer: torch.optim.Optimizer, sync: str, momentum_correction: bool) -> None:
    """Raises ValueError for an optimizer that cannot be cut."""
    name = type(optimizer).__name__
    if type(optimizer) not in _ELEMENTWISE:
        permitted = ", ".join(kind.__name__ for kind in _ELEMENTWISE)
        raise ValueError(f"the optimizer is {name} with sync '{sync}'; permitted: {permitted}")
    if momentum_correction and type(optimizer) is not torch.optim.SGD:
        raise ValueError(f"momentum_correction is True with {name}; permitted: with SGD")


def settings_of(group: dict[str, Any], corrected_for: int) -> dict[str, Any]:
    """What goes with a gradient: schedulers change the rate, and some change momentum or betas. `corrected_for` so many
    asynchronous workers, which add momentum of their own; 0: not."""
    settings: dict[str, Any] = {}
    for name, value in group.items():
        if isinstance(value, torch.Tensor):
            value = value.item()
        if name not in _LOCAL and _is_plain(value):
            settings[name] = list(value) if isinstance(value, tuple) else value
    if corrected_for > 0:
        settings["momentum"] = asynchronous_momentum(settings["momentum"], corrected_for)
    return settings


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, (bool, int, float))


class SliceUpdater:
    """served.session.Updater with an optimizer of the same class as `whole`, with the settings of its group."""

    def __init__(self, whole: torch.optim.Optimizer, group: int, values: torch.Tensor) -> None:
        self.size = values.numel() * values.element_size()
        self._values = values
        self._dtype = values.dtype
        self._sum = torch.zeros_like(values, dtype=torch.promote_types(values.dtype, torch.float32))
        known = inspect.signature(type(whole).__init__).parameters
        options = settings_of(whole.param_groups[group], 0)
        options = {name: _as_given(value) for name, value in options.items() if name in known}
        self.optimizer = type(whole)([values], **options)  # type: ignore[call-arg]

    def read(self, into: np.ndarray) -> None:
        if self.size > 0:
            self._tensor(into).copy_(self._values)

    def add(self, gradient: np.ndarray, weight: float, first: bool) -> None:
        if first:
            self._sum.zero_()
        if self.size > 0:
            self._sum.add_(self._tensor(gradient), alpha=weight)

    def take_mean(self, weight: float) -> np.ndarray:
        mean = (self._sum / weight).to(self._dtype)
        return mean.view(torch.uint8).numpy()

    def step(self, gradient: np.ndarray, settings: dict[str, Any], factor: float) -> None:
        if self.size == 0:
            return
        group = self.optimizer.param_groups[0]
        group.update({name: _as_given(value) for name, value in settings.items()})
        group["lr"] = settings["lr"] * factor
        self._values.grad = self._tensor(gradient)
        self.optimizer.step()
        self._values.grad = None

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).view(self._dtype)

    @property
    def learned(self) -> dict[str, Any]:
        return self.optimizer.state[self._values]


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# What the chunks have learned, in the form of the whole optimizer and back, so that what is saved does not depend on
# how a job trains.


def cut(
    whole: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], layout: ParameterLayout, rank: int
) -> list[SliceUpdater]:
    """Updaters of this worker's chunks, with the present values and what `whole` has learned of them. Local."""
    updaters, strips, slots = [], layout.strips, layout.slots
    for chunk in layout.chunks_on(rank):
        inside = [one for one, slot in zip(parameters, slots, strict=True) if slot.strip == chunk.strip]

        def part(values: list[torch.Tensor], first: int = chunk.first, last: int = chunk.last) -> torch.Tensor:
            return torch.cat([one.detach().cpu().flatten() for one in values])[first:last].clone()

        updater = SliceUpdater(whole, strips[chunk.strip].group, part(list(inside)))
        known: dict[str, Any] = next((whole.state[one] for one in inside if whole.state.get(one)), {})
        for name, example in known.items():
            if name in _SCALARS or not isinstance(example, torch.Tensor):
                updater.learned[name] = example.clone() if isinstance(example, torch.Tensor) else example
            else:
                updater.learned[name] = part([_learned_of(whole, one, name) for one in inside])
        updaters.append(updater)
    return updaters


def _learned_of(whole: torch.optim.Optimizer, parameter: torch.nn.Parameter, name: str) -> torch.Tensor:
    value = whole.state.get(parameter, {}).get(name)
    if value is None:
        return torch.zeros_like(parameter, device="cpu")
    if value.shape != parameter.shape:
        raise Error(f"the optimizer's {name} has the shape {tuple(value.shape)}, which cannot be cut into shares")
    return value.detach().cpu()


def gather(
    whole: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], layout: ParameterLayout,
    learned: dict[int, Any],
) -> None:  # fmt: skip
    """`whole` learns what all chunks have: `learned` is by the number of the chunk."""
    of_chunks = [(chunk, learned[number]) for number, chunk in enumerate(layout.chunks)]
    for parameter, slot in zip(parameters, layout.slots, strict=True):
        held = [one for chunk, one in of_chunks if chunk.strip == slot.strip and one]
        state: dict[str, Any] = {}
        for name, example in (held[0] if held else {}).items():
            if name in _SCALARS or not isinstance(example, torch.Tensor):
                state[name] = example.clone() if isinstance(example, torch.Tensor) else example
            else:
                flat = torch.cat([one[name] for one in held])[slot.first : slot.last]
                state[name] = flat.clone().view(parameter.shape).to(parameter.device)
        if state:
            whole.state[parameter] = state
