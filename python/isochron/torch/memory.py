"""Which errors mean that memory ran out."""

from __future__ import annotations

import gc

import torch


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    # torch's allocator on the CPU raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)


def release_cached_memory() -> None:
    gc.collect()  # a failed step may hang in a cycle with its traceback
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
