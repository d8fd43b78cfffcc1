"""The time that a worker computes in a step: to its last own gradient, less what it waits for the others until then.

The end of backward would not do: the reduction makes it the same moment for all. So the clock stops where autograd has
computed the gradients of a backward pass and goes on where the wrapper has reduced them: a step may have several
passes. For that a hook on the parameters asks autograd, as a pass begins, for a call at its end; DDP, which asks later,
is served later. Hooks cost a few microseconds each; once it is known which gradients come last in a pass, only theirs
stay, and those of parameters that had none yet. On a GPU events of its stream take the place of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from isochron._core import process_usage

KEPT_HOOKS = 8


@dataclass(frozen=True)
class _Moment:
    host: float
    waited: float  # in exchanges until then, as the host counts them
    event: Any  # of the GPU's stream

    def until(self, other: _Moment) -> float:
        if self.event is None:
            return other.host - self.host
        other.event.synchronize()
        return self.event.elapsed_time(other.event) / 1000.0


class Stopwatch:
    def __init__(self, device: torch.device, waited: Callable[[], float] = lambda: 0.0) -> None:
        """`waited` says how many seconds this worker has spent in blocking exchanges so far."""
        self._cuda = device.type == "cuda"
        self._count_waits = waited
        self._hooks: list[tuple[torch.nn.Parameter, Any]] = []
        self._order: list[list[torch.nn.Parameter]] | None = []  # of arrival in a step's passes; None: known
        self._unpredictable: set[int] = set()  # parameters whose hooks stay
        self._to_end = False
        self._in_pass = False
        self._start = self._moment()
        self._own: _Moment | None = None  # the end of what this worker computed in the last pass
        self._passes: list[tuple[_Moment, _Moment]] = []  # and of what all have reduced
        self._cpu = 0.0

    def watch(self, parameters: Iterable[torch.nn.Parameter], unpredictable: bool = False) -> None:
        """`unpredictable`: a pass may leave out any of them."""
        for parameter in parameters:
            if parameter.requires_grad:
                self._hooks.append((parameter, parameter.register_post_accumulate_grad_hook(self._note)))
                if unpredictable:
                    self._unpredictable.add(id(parameter))
        self._order = []

    def watch_to_end(self) -> None:
        """For wrappers that reduce while they compute: all time counts that is not known to be waiting."""
        self._to_end = True

    def start(self) -> None:
        self._thin_out()
        self._in_pass = False
        self._own = None
        self._passes = []
        self._cpu = process_usage().cpu_seconds
        self._start = self._moment()

    def stop(self) -> None:
        """The last backward is over."""
        if self._to_end or self._own is None:
            self._own = self._moment()
            self._passes = []

    def measure(self) -> tuple[float, float, int]:
        """Seconds of computing, seconds of waiting until then, and how many reductions came before the last one. Waits
        for the GPU if there is one; while the host waits, the GPU has nothing to do either."""
        assert self._own is not None
        earlier = [(own, reduced) for own, reduced in self._passes if own is not self._own]
        waited = self._own.waited - self._start.waited
        for own, reduced in earlier:
            waited += own.until(reduced) - (reduced.waited - own.waited)
        return max(self._start.until(self._own) - waited, 0.0), waited, len(earlier)

    @property
    def saw_gradients(self) -> bool:
        return self._own is not None

    def newly_seen(self) -> set[int]:
        """The parameters (by id) that had a gradient in the step under way, in a step that finds out which do."""
        return {id(parameter) for one in self._order or () for parameter in one}

    @property
    def started(self) -> float:
        return self._start.host

    def cpu_share(self, seconds: float) -> float:
        return min((process_usage().cpu_seconds - self._cpu) / max(seconds, 1e-9), 1.0)

    def _moment(self) -> _Moment:
        event = None
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return _Moment(time.perf_counter(), self._count_waits(), event)

    def _note(self, parameter: torch.Tensor) -> None:
        if not self._in_pass:
            self._in_pass = True
            _call_at_end_of_pass(self._end_own_part)
            if self._order is not None:
                self._order.append([])
        if self._order:
            self._order[-1].append(parameter)  # type: ignore[arg-type]

    def _end_own_part(self) -> None:
        self._own = self._moment()
        _call_at_end_of_pass(self._end_pass)  # behind the wrapper's own call, which waits for the reduction

    def _end_pass(self) -> None:
        assert self._own is not None
        self._passes.append((self._own, self._moment()))
        self._in_pass = False

    def _thin_out(self) -> None:
        if not self._order:
            return
        seen = {id(parameter) for one in self._order for parameter in one}
        kept = {id(parameter) for one in self._order for parameter in one[-KEPT_HOOKS:]} | self._unpredictable
        for parameter, hook in self._hooks:
            if id(parameter) in seen - kept:
                hook.remove()
        self._hooks = [(parameter, hook) for parameter, hook in self._hooks if id(parameter) not in seen - kept]
        self._order = None

    def close(self) -> None:
        for _, hook in self._hooks:
            hook.remove()
        self._hooks = []


def _call_at_end_of_pass(call: Callable[[], None]) -> None:
    """Of the backward pass under way, in the order of asking; a call may ask for another one."""
    torch.autograd.Variable._execution_engine.queue_callback(call)  # type: ignore[attr-defined]


def memory_shares(device: torch.device) -> tuple[float, float]:
    """Of the machine's or the GPU's memory: what is in use, and the most that this process has held."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return 1.0 - free / total, torch.cuda.max_memory_reserved(device) / total
    usage = process_usage()
    return usage.memory, usage.peak_memory
