"""Batches out of chunks: what default_collate makes of all samples, from what it made of a few at a time."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from typing import Any

import torch


def take(chunk: Any, first: int, last: int) -> Any:
    """Samples first .. last - 1 of a collated chunk."""
    if isinstance(chunk, torch.Tensor):
        return chunk[first:last]
    if isinstance(chunk, collections.abc.Mapping):
        return {key: take(value, first, last) for key, value in chunk.items()}
    if _holds_samples(chunk):
        return chunk[first:last]
    parts = [take(value, first, last) for value in chunk]
    return type(chunk)(*parts) if _is_named(chunk) else parts


def join(chunks: list[Any]) -> Any:
    """One batch of several, in their order."""
    head = chunks[0]
    if len(chunks) == 1:
        return head
    if isinstance(head, torch.Tensor):
        return torch.cat(chunks)
    if isinstance(head, collections.abc.Mapping):
        return {key: join([chunk[key] for chunk in chunks]) for key in head}
    if _holds_samples(head):
        return [sample for chunk in chunks for sample in chunk]
    parts = [join(list(column)) for column in zip(*chunks, strict=True)]
    return type(head)(*parts) if _is_named(head) else parts


def _holds_samples(chunk: Any) -> bool:
    """Text stays a list of one entry per sample; every other list has one entry per column."""
    return isinstance(chunk, (list, tuple)) and bool(chunk) and isinstance(chunk[0], (str, bytes))


def _is_named(chunk: Any) -> bool:
    return isinstance(chunk, tuple) and hasattr(chunk, "_fields")


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
