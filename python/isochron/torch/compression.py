"""Gradients that travel in fewer bytes (compression="bf16", "int8"), as communication hooks of DDP.

Losses are weighted before backward, so a plain average over the workers is that of the global batch, compressed or not.

int8 with error feedback, as natively (isochron/engine/comm_hook.h). With gradients g_k and errors e_k, cut into K parts
and those into blocks of 256 numbers, each with its largest as a scale:
  a) worker k sends every part of q(g_k + e_k) to its owner, its own part exactly; e_k = g_k + e_k - q(g_k + e_k);
  b) the owner of a part sends q(m) of the mean m of what it got to all, and owes K (m - q(m)) of that part.
So each number travels twice as a byte, in place of twice as four, and what rounding loses comes with the next step
(Seide et al. 2014; Tang et al. 2021 for the two stages). All decode the same bytes: replicas stay equal bit by bit.

The exchange begins when all gradients are there. What is owed is the mean of the errors. They are kept by parameter,
not by DDP's buckets, so that they stay when buckets or members change. They are of the loss that was differentiated:
when a GradScaler changes its scale, what is owed at that moment counts by the old one.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from isochron.torch.stopwatch import Waits
from isochron.torch.world import all_gather_single

BLOCK = 256
Packed = torch.Tensor  # of bytes: whole numbers, then the scales


def quantize(values: torch.Tensor) -> tuple[Packed, torch.Tensor]:
    """Rows of a multiple of BLOCK numbers as bytes, and what becomes of them."""
    blocks = values.view(len(values), -1, BLOCK)
    scales = blocks.abs().amax(2).to(torch.float32)  # not finite where a number is not
    steps = (scales / 127.0).to(values.dtype).unsqueeze(2)
    whole = torch.where(steps > 0, blocks / steps, torch.zeros_like(blocks)).round_().clamp_(-127, 127)
    numbers = whole.nan_to_num_(0.0).to(torch.int8).view(len(values), -1)
    packed = torch.cat((numbers.view(torch.uint8), scales.contiguous().view(torch.uint8)), dim=1)
    return packed, unpack(packed, values.dtype)


def unpack(packed: Packed, dtype: torch.dtype) -> torch.Tensor:
    count = packed.shape[1] * BLOCK // (BLOCK + 4)
    numbers = packed[:, :count].contiguous().view(torch.int8).to(dtype).view(len(packed), -1, BLOCK)
    scales = packed[:, count:].contiguous().view(torch.float32)
    return (numbers * (scales / 127.0).to(dtype).unsqueeze(2)).view(len(packed), count)


class Bf16Average:
    """The state of a hook that averages in half the bytes."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.process_group: dist.ProcessGroup | None = group

    def follow(self, group: dist.ProcessGroup | None) -> None:
        self.process_group = group

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        short = buffer.to(torch.bfloat16).div_(dist.get_world_size(self.process_group))
        sent = dist.all_reduce(short, group=self.process_group, async_op=True).get_future()
        return sent.then(lambda done: buffer.copy_(done.value()[0]))


class Int8Average:
    """The state of a hook that averages in a quarter of the bytes."""

    def __init__(self, group: dist.ProcessGroup, waits: Waits) -> None:
        self.process_group: dist.ProcessGroup | None = group
        self._members = dist.get_world_size(group)
        self._waits = waits
        self._places: dict[torch.Tensor, int] = {}  # where a parameter's numbers begin
        self._size = 0
        self._buckets: list[tuple[dist.GradBucket, torch.futures.Future[torch.Tensor]]] = []
        self._error: torch.Tensor | None = None
        self._before: torch.Tensor | None = None
        self._mean: torch.Tensor | None = None

    # A step.

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if bucket.index() == 0:
            self._buckets.clear()  # of a step that did not come to its end
        self._buckets.append((bucket, future))
        if bucket.is_last():
            buckets, self._buckets = self._buckets, []
            average = self._average(self._flatten(buckets))
            for one, waiting in buckets:
                for parameter, gradient in zip(one.parameters(), one.gradients(), strict=True):
                    first = self._places[parameter]
                    gradient.copy_(average[first : first + gradient.numel()].view_as(gradient))
                waiting.set_result(one.buffer())
        return future

    def _flatten(self, buckets: list[Any]) -> torch.Tensor:
        gradients = [pair for one, _ in buckets for pair in zip(one.parameters(), one.gradients(), strict=True)]
        for parameter, gradient in gradients:
            if parameter not in self._places:
                self._places[parameter] = self._size
                self._size += gradient.numel()
        example = gradients[0][1]
        flat = torch.zeros(self._size, dtype=torch.promote_types(example.dtype, torch.float32), device=example.device)
        for parameter, gradient in gradients:
            first = self._places[parameter]
            flat[first : first + gradient.numel()] = gradient.flatten()
        return flat

    def _average(self, flat: torch.Tensor) -> torch.Tensor:
        workers, rank = self._members, dist.get_rank(self.process_group)
        length = BLOCK * math.ceil(self._size / (BLOCK * workers))
        rows = torch.zeros(workers, length, dtype=flat.dtype, device=flat.device)
        rows.view(-1)[: self._size] = flat if self._error is None else flat + self._error.to(flat)
        packed, decoded = quantize(rows)
        errors = rows - decoded
        parts = torch.empty_like(packed)
        with self._waits.counted():
            dist.all_to_all_single(parts, packed, group=self.process_group)
        received = unpack(parts, flat.dtype)
        received[rank] = rows[rank]
        mean = received.mean(0, keepdim=True)
        packed, decoded = quantize(mean)
        errors[rank] = (mean - decoded)[0] * workers
        # A step without finite numbers owes nothing: else no later one would have any.
        self._error = errors.nan_to_num_(0.0, 0.0, 0.0).view(-1)[: self._size]
        everything = packed.new_empty((workers, packed.shape[1]))
        with self._waits.counted():
            all_gather_single(everything, packed, group=self.process_group)
        return unpack(everything, flat.dtype).view(-1)[: self._size]

    # Steps that do not happen, and members that change.

    def remember(self) -> None:
        """What it is now is what undo() gives back. A step makes a new one."""
        self._before = self._error

    def undo(self) -> None:
        self._error = self._before

    def follow(self, group: dist.ProcessGroup | None) -> None:
        """Another number of workers takes the mean from now on; what those owe who stay is what they owed before."""
        members, self._members = self._members, dist.get_world_size(group)
        self.process_group, self._buckets = group, []
        if self._error is not None and self._members != members:
            self._error = self._error * (self._members / members)

    # As part of a checkpoint.

    def gather(self) -> None:
        """The mean of all errors, for state_dict(). Collective."""
        self._mean = None
        if self._error is not None:
            mean = self._error / self._members
            dist.all_reduce(mean, group=self.process_group)
            self._mean = mean

    def forget(self) -> None:
        """The mean of before: it is not known now."""
        self._mean = None

    def state_dict(self) -> dict[str, Any]:
        return {"error": self._mean}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """All workers have the mean as theirs then."""
        self._error = saved["error"]


def attach(model: Any, kind: str, waits: Waits) -> list[Any]:
    """Registers the hook of a DDP model for this compression. Returns what owes something, for checkpoints."""
    if kind == "none":
        return []
    average: Any = Bf16Average(model.process_group) if kind == "bf16" else Int8Average(model.process_group, waits)
    model.register_comm_hook(average, lambda state, bucket: state.hook(bucket))
    return [average] if kind == "int8" else []
