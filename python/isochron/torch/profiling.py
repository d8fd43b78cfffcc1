"""Measures one's own model on this machine, for `isochron plan`: what a batch takes, by its size."""

from __future__ import annotations

import copy
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

from isochron import _core
from isochron.torch import collate

SCHEMA = 1
ROUNDS = 3
COPIED = 1 << 22  # floats that are added to see what moving gradients costs


def profile(
    model: nn.Module,
    loss_of: Callable[..., torch.Tensor],
    dataset: Dataset[Any],
    optimizer: torch.optim.Optimizer | None = None,
    *,
    path: str | os.PathLike[str],
    max_batch: int = 512,
    seconds: float = 60.0,
    collate_fn: Callable[[list[Any]], Any] = default_collate,
) -> dict[str, Any]:
    """Writes the profile of a model for `isochron plan --model-profile`, and returns it.

    `loss_of(model, *batch)` is the loss of a batch as `collate_fn` makes it from samples of the map-style `dataset`.
    Sizes 1, 2, 4, … up to `max_batch` are measured on a copy of the model, for about `seconds` in all; sizes that
    would take longer, or that memory does not hold, are left out. `optimizer` says what a step of it costs. See
    docs/plan.md.
    """
    if not isinstance(max_batch, int) or max_batch < 1:
        raise ValueError(f"max_batch is {max_batch!r}; permitted: 1 or more")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds!r}; permitted: above 0")
    if len(dataset) == 0:  # type: ignore[arg-type]
        raise ValueError("dataset has no samples; permitted: one or more")
    copied, updates = copy.deepcopy((model, optimizer))  # together: the optimizer's parameters are the copy's
    measured = _Profiler(copied, loss_of, dataset, collate_fn, seconds)
    points = measured.points(max_batch)
    parameters = [one for one in model.parameters() if one.requires_grad]
    document = {
        "schema": SCHEMA,
        "program": "profile",
        "version": _core.VERSION,
        "model": type(model).__name__,
        "dataset": type(dataset).__name__,
        "dataset_size": len(dataset),  # type: ignore[arg-type]
        "device": measured.device.type,
        "machine": platform.node(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "parameter_bytes": sum(one.numel() * one.element_size() for one in parameters),
        "prepare_seconds": measured.prepare_seconds(),
        "update_seconds": measured.update_seconds(updates),
        "copy_seconds": measured.copy_seconds(),
        "points": points,
    }
    Path(path).write_text(json.dumps(document, indent=2) + "\n")
    return document


class _Profiler:
    def __init__(
        self, model: nn.Module, loss_of: Any, dataset: Any, collate_fn: Any, seconds: float
    ) -> None:
        self._model, self._loss_of, self._dataset, self._collate = model, loss_of, dataset, collate_fn
        self._seconds = seconds
        self.device = next((one.device for one in model.parameters()), torch.device("cpu"))

    def points(self, max_batch: int) -> list[dict[str, Any]]:
        points: list[dict[str, Any]] = []
        sizes = [1 << power for power in range(max_batch.bit_length()) if 1 << power <= max_batch]
        end, last = time.monotonic() + self._seconds, 0.0
        for place, size in enumerate(sizes):
            left = (end - time.monotonic()) / (len(sizes) - place)
            if points and (ROUNDS + 1) * 2 * last > end - time.monotonic():
                break  # it would take most of the time, or more than there is
            try:
                times = self._times(size, left)
            except torch.OutOfMemoryError:
                break
            last = statistics.median(times)
            ninth = statistics.quantiles(times, n=10)[-1] if len(times) > 1 else last
            points.append({
                "batch": size,
                "seconds": {"p50": last, "p90": max(last, ninth)},
                "bytes": self._peak_bytes(),
                "readings": len(times),
            })  # fmt: skip
        return points

    def _times(self, size: int, seconds: float) -> list[float]:
        samples = [self._dataset[index % len(self._dataset)] for index in range(size)]
        batch = collate.move(self._collate(samples), self.device)
        parts = batch if isinstance(batch, (list, tuple)) else (batch,)
        self._time(parts)  # for warming up
        times: list[float] = []
        end = time.monotonic() + seconds
        while len(times) < ROUNDS or (time.monotonic() < end and len(times) < 300):
            times.append(self._time(parts))
        return times

    def _time(self, parts: Any) -> float:
        self._model.zero_grad()
        self._await()
        start = time.perf_counter()
        self._loss_of(self._model, *parts).backward()
        self._await()
        return time.perf_counter() - start

    def _await(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _peak_bytes(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_reserved(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def prepare_seconds(self) -> float:
        """To read a sample, by one thread."""
        count = min(len(self._dataset), 64)
        start = time.perf_counter()
        for index in range(count):
            self._dataset[index]
        return (time.perf_counter() - start) / count

    def update_seconds(self, optimizer: torch.optim.Optimizer | None) -> float:
        """Times the copy's optimizer, with the gradients of the last batch."""
        if optimizer is None:
            return 0.0
        times = []
        for _ in range(ROUNDS + 1):
            self._await()
            start = time.perf_counter()
            optimizer.step()
            self._await()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    def copy_seconds(self) -> float:
        """For a byte of gradients that arrives and is added."""
        here, arriving = torch.zeros(COPIED, device=self.device), torch.ones(COPIED)
        times = []
        for _ in range(ROUNDS + 1):
            self._await()
            start = time.perf_counter()
            here += arriving.to(self.device)
            self._await()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:]) / (4 * COPIED)
