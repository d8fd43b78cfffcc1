"""Batches out of pieces: what default_collate makes of all samples, from what it made of a few at a time."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from typing import Any

import torch


def take(piece: Any, first: int, last: int) -> Any:
    """Samples first .. last - 1 of a collated piece."""
    if isinstance(piece, torch.Tensor):
        return piece[first:last]
    if isinstance(piece, collections.abc.Mapping):
        return {key: take(value, first, last) for key, value in piece.items()}
    if _holds_samples(piece):
        return piece[first:last]
    parts = [take(value, first, last) for value in piece]
    return type(piece)(*parts) if _is_named(piece) else parts


def join(pieces: list[Any]) -> Any:
    """One batch of several, in their order."""
    head = pieces[0]
    if len(pieces) == 1:
        return head
    if isinstance(head, torch.Tensor):
        return torch.cat(pieces)
    if isinstance(head, collections.abc.Mapping):
        return {key: join([piece[key] for piece in pieces]) for key in head}
    if _holds_samples(head):
        return [sample for piece in pieces for sample in piece]
    parts = [join(list(column)) for column in zip(*pieces, strict=True)]
    return type(head)(*parts) if _is_named(head) else parts


def _holds_samples(piece: Any) -> bool:
    """Text stays a list of one entry per sample; every other list has one entry per column."""
    return isinstance(piece, (list, tuple)) and bool(piece) and isinstance(piece[0], (str, bytes))


def _is_named(piece: Any) -> bool:
    return isinstance(piece, tuple) and hasattr(piece, "_fields")


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """All tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, collections.abc.Mapping):
        return [tensor for value in batch.values() for tensor in tensors_of(value)]
    if isinstance(batch, (list, tuple)):
        return [tensor for value in batch for tensor in tensors_of(value)]
    return []


def pin(batch: Any) -> Any:
    """In memory that a GPU can read by itself."""
    return with_tensors(batch, torch.Tensor.pin_memory)


def move(batch: Any, device: torch.device) -> Any:
    """On that device; without waiting for the copy where the memory permits it."""
    return with_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def with_tensors(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The batch with other tensors."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, collections.abc.Mapping):
        return {key: with_tensors(value, change) for key, value in batch.items()}
    if _is_named(batch):
        return type(batch)(*(with_tensors(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(with_tensors(value, change) for value in batch)
    return batch
