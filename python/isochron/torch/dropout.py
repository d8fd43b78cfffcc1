"""Dropout that belongs to the sample, not to the worker.

PyTorch's dropout draws from its device's generator, so that who computes a sample decides what is dropped of it. Here
it is a keyed function of (seed, epoch, position of the sample in the epoch's order, layer, element): the same whatever
the split, the number of workers and of micro-batches, on CPUs and GPUs. So a job equals one process with the whole
batch.

Each element has the number that splitmix64 (Steele, Lea and Flood, OOPSLA 2014) gives for its row's key and its place
in the row; a row's key is that of its sample's position. It costs some operations on 64-bit integers per element. A
layer that is used twice in a step drops the same both times, so that recomputed activations are the same, too.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from isochron._core import mix_key
from isochron.errors import Error

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24  # of a number that decide


class Dropout(nn.Module):
    """In place of torch.nn.Dropout, in a model that is given to Job.prepare(): the first dimension is the sample."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"p is {p}; permitted: 0 to 1")
        self.p = p
        self._job: weakref.ref[Any] | None = None
        self._layer = 0

    def bind(self, job: Any, layer: int) -> None:
        self._job, self._layer = weakref.ref(job), layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0.0:
            return x
        return x * self._factors(x)

    @torch.compiler.disable
    def _factors(self, x: torch.Tensor) -> torch.Tensor:
        job = self._job() if self._job is not None else None
        if job is None:
            raise Error("a Dropout of a model that no job has prepared; permitted: job.prepare(model) before its use")
        positions = job.positions(len(x))
        if positions is None:
            raise Error(
                f"a Dropout got {len(x)} rows, which is not the number of samples; permitted: a row for each sample, "
                "or torch.nn.Dropout, which follows the worker"
            )
        key = mix_key([job.options.seed, job.epoch, self._layer])
        kept = keep(key, positions, math.prod(x.shape[1:]), self.p, x.device).view(x.shape)
        return kept.to(x.dtype) * (1.0 / (1.0 - self.p) if self.p < 1.0 else 0.0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_job": None}

    def extra_repr(self) -> str:
        return f"p={self.p}"


def keep(key: int, positions: Sequence[int], width: int, p: float, device: torch.device) -> torch.Tensor:
    """Which of the `width` elements of the samples at these positions stay: a row of booleans for each."""
    key = key - 2**64 if key >= 2**63 else key
    rows = _mixed(torch.tensor(positions, dtype=torch.int64).to(device) * _GOLDEN + key)
    places = torch.arange(1, width + 1, dtype=torch.int64, device=device) * _GOLDEN
    return (_mixed(rows[:, None] + places) & (2**_BITS - 1)) >= round(p * 2**_BITS)


def _mixed(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: torch.Tensor, by: int) -> torch.Tensor:
    """To the right, as of numbers without a sign."""
    return (z >> by) & (2 ** (64 - by) - 1)


def bind_dropouts(job: Any, model: nn.Module, first: int) -> int:
    """Gives the model's layers their numbers, from `first` on, and returns the next one."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.bind(job, first)
            first += 1
    return first
