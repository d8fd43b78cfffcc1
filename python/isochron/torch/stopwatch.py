"""The time from the start of a step to this worker's last own gradient.

The end of backward would not do: the reduction makes it the same moment for all. So a hook on the parameters notes when
a gradient is there. Hooks cost a few microseconds each; once the order of the gradients is known, only those of the
last few parameters stay. On a GPU events of its stream take the place of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from isochron._core import process_usage

KEPT_HOOKS = 8


class Stopwatch:
    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._hooks: list[tuple[torch.nn.Parameter, Any]] = []
        self._order: list[torch.nn.Parameter] | None = []  # of arrival in the first step; None: known
        self._to_end = False
        self._started = self._last = 0.0
        self._start_event: Any = None
        self._last_event: Any = None
        self._cpu = 0.0

    def watch(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.requires_grad:
                self._hooks.append((parameter, parameter.register_post_accumulate_grad_hook(self._note)))
        self._order = []

    def watch_to_end(self) -> None:
        """For wrappers that reduce while they compute: all time counts that is not known to be waiting."""
        self._to_end = True

    def start(self) -> None:
        self._thin_out()
        self._started = self._last = time.perf_counter()
        self._cpu = process_usage().cpu_seconds
        if self._cuda:
            self._start_event = torch.cuda.Event(enable_timing=True)
            self._start_event.record()
            self._last_event = None

    def stop(self) -> None:
        """Backward is over."""
        if self._to_end or self._last == self._started:
            self._note(None)

    def seconds(self) -> float:
        """Waits for the GPU if there is one."""
        if not self._cuda:
            return self._last - self._started
        self._last_event.synchronize()
        return self._start_event.elapsed_time(self._last_event) / 1000.0

    @property
    def started(self) -> float:
        return self._started

    def cpu_share(self, seconds: float) -> float:
        return min((process_usage().cpu_seconds - self._cpu) / max(seconds, 1e-9), 1.0)

    def _note(self, parameter: torch.nn.Parameter | None) -> None:
        self._last = time.perf_counter()
        if self._cuda:
            self._last_event = torch.cuda.Event(enable_timing=True)
            self._last_event.record()
        if self._order is not None and parameter is not None:
            self._order.append(parameter)

    def _thin_out(self) -> None:
        if not self._order:
            return
        last = {id(parameter) for parameter in self._order[-KEPT_HOOKS:]}
        for parameter, hook in self._hooks:
            if id(parameter) not in last:
                hook.remove()
        self._hooks = [(parameter, hook) for parameter, hook in self._hooks if id(parameter) in last]
        self._order = None

    def close(self) -> None:
        for _, hook in self._hooks:
            hook.remove()
        self._hooks = []


def memory_shares(device: torch.device) -> tuple[float, float]:
    """Of the machine's or the GPU's memory: what is in use, and the most that this process has held."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return 1.0 - free / total, torch.cuda.max_memory_reserved(device) / total
    usage = process_usage()
    return usage.memory, usage.peak_memory
