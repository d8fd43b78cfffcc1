"""Which part of a worker's step does not depend on its batch, of a model that is being trained by somebody else's loop.

A loop with equal shares shows every worker's time at one batch only. So the model computes the batch that it has just
had, and a quarter of it, a few times more, by itself: without gradients being added to anything, without other workers,
and with its buffers and random numbers as before.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from isochron.torch import collate
from isochron.torch.parallel import is_fsdp

ROUNDS = 5
SMALLEST = 8  # samples; of fewer a quarter says nothing


@dataclass
class Forward:
    """What the model was called with in a training step."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    batch: int
    autocast: bool
    dtype: torch.dtype

    @staticmethod
    def of(arguments: tuple[Any, ...], keywords: dict[str, Any], device: torch.device) -> Forward:
        autocast = torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type)
        return Forward(arguments, keywords, batch_of(arguments, keywords), autocast, dtype)

    def first(self, count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same with its first `count` samples."""

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            whole = tensor.dim() > 0 and tensor.shape[0] == self.batch
            return (tensor[:count] if whole else tensor).detach()

        return collate.with_tensors(self.arguments, cut), collate.with_tensors(self.keywords, cut)


def batch_of(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """Samples, by the first tensor that has any; 0: none."""
    return next((len(one) for one in collate.tensors_of((arguments, keywords)) if one.dim() > 0), 0)


def obstacle(model: nn.Module, forward: Forward | None) -> str:
    """Why there is no probe; empty if there is one."""
    if forward is None or forward.batch < SMALLEST:
        return f"the batch has fewer than {SMALLEST} samples"
    if is_fsdp(model):
        return "the model is sharded"
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None and any(isinstance(one, dynamo.OptimizedModule) for one in model.modules()):
        return "the model is compiled"
    return ""


def measure_fixed_share(model: nn.Module, forward: Forward, device: torch.device) -> tuple[float, float]:
    """For forward and backward, the share that does not depend on the batch, and the seconds of the whole batch."""
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    buffers = [(buffer, buffer.detach().clone()) for buffer in plain.buffers()]
    small = forward.batch // 4
    times: dict[int, list[float]] = {forward.batch: [], small: []}
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            for turn in range(ROUNDS + 1):
                for size, known in times.items():
                    seconds = _time(plain, forward, size, device)
                    if turn > 0:  # the first one is for warming up
                        known.append(seconds)
    finally:
        with torch.no_grad():
            for buffer, copy in buffers:
                buffer.copy_(copy)
    whole, part = statistics.median(times[forward.batch]), statistics.median(times[small])
    slope = max(whole - part, 0.0) / (forward.batch - small)
    share = max(whole - slope * forward.batch, 0.0) / max(whole, 1e-9)
    return min(share, 0.99), whole


def _time(model: nn.Module, forward: Forward, size: int, device: torch.device) -> float:
    """Seconds of a forward and a backward pass over the first `size` samples."""
    arguments, keywords = forward.first(size)
    parameters = [one for one in model.parameters() if one.requires_grad]
    _await(device)
    start = time.perf_counter()
    with torch.autocast(device.type, dtype=forward.dtype, enabled=forward.autocast):
        loss = _loss_of(model(*arguments, **keywords))
    torch.autograd.grad(loss, parameters, allow_unused=True)
    _await(device)
    return time.perf_counter() - start


def _loss_of(outputs: Any) -> torch.Tensor:
    """Something to differentiate: the loss if the model computes it, else the sum of what it returns."""
    loss = getattr(outputs, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    parts = [one.float().sum() for one in collate.tensors_of(outputs) if one.requires_grad]
    if not parts:
        raise ValueError("the model returned no tensor that needs a gradient")
    return torch.stack(parts).sum()


def _await(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
