"""A worker's batch in micro-batches, where its memory does not hold the whole.

The shares of the micro-batches add up to 1, so that their gradients add up to that of the batch. Only the last one's
backward pass averages with the other workers, who may compute another number of them.
"""

from __future__ import annotations

import collections.abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from isochron.torch import collate
from isochron.torch.batch_norm import has_batch_norm
from isochron.torch.parallel import is_fsdp1


@dataclass(frozen=True)
class MicroBatch:
    share: float = 1.0  # of the batch's items
    inputs: tuple[Any, ...] = ()  # of the function of the loss
    first: int = 0  # its first row in the batch


@dataclass(frozen=True)
class Division:
    loss_of: Callable[..., torch.Tensor]
    parts: list[MicroBatch]
    items: float | None  # of the whole batch, as count= says; None: it says nothing


def whole(loss: torch.Tensor | Callable[[], torch.Tensor], count: Any) -> Division:
    return Division(loss if callable(loss) else lambda: loss, [MicroBatch()], None if count is None else float(count))


def divide(loss_of: Any, batch: tuple[Any, ...], most: int, count: Any) -> Division:
    """Into micro-batches of `most` samples, and of what is left; 0: into one."""
    if not callable(loss_of):
        raise ValueError(f"backward() got a {type(loss_of).__name__} and a batch; permitted: a function of the batch")
    if count is not None and not callable(count):
        raise ValueError(f"count is {count!r} beside a batch; permitted: a function of the batch")
    rows = _row_counts(batch)
    if len(rows) != 1 or rows == {0}:
        found = " and ".join(map(str, sorted(rows))) or "no"
        raise ValueError(f"backward() got a batch with {found} rows; permitted: a row for each sample everywhere")
    size = rows.pop()
    starts = range(0, size, most or size)
    parts = [tuple(collate.take(one, at, at + starts.step) for one in batch) for at in starts]
    items = [float(count(*part)) if count else min(starts.step, size - at) for at, part in zip(starts, parts)]
    total = math.fsum(items)
    shares = [each / total if total > 0 else 1.0 / len(parts) for each in items]
    return Division(loss_of, [*map(MicroBatch, shares, parts, starts)], total if count else None)


def _row_counts(batch: Any) -> set[int]:
    """How many samples its columns have."""
    if isinstance(batch, torch.Tensor):
        return {len(batch) if batch.dim() > 0 else 0}
    if isinstance(batch, collections.abc.Mapping):
        batch = list(batch.values())
    if not isinstance(batch, (list, tuple)):
        raise ValueError(f"backward() got a batch with a {type(batch).__name__}; permitted: what default_collate makes")
    if batch and isinstance(batch[0], (str, bytes)):
        return {len(batch)}
    return {rows for column in batch for rows in _row_counts(column)}


def obstacle(model: nn.Module) -> str:
    """Why its batches cannot be divided; "" if they can."""
    if has_batch_norm(model):
        return "a model with BatchNorm, whose statistics need the whole batch at once"
    if is_fsdp1(model):
        return "a model in FullyShardedDataParallel, which gathers parameters in every pass (fully_shard need not)"
    return ""
