"""The time that a worker computes in a step: to its last own gradient, less what it waits for the others until then.

The end of backward would not do: the reduction makes it the same moment for all. So the clock stops where autograd
has computed the gradients of a backward pass and goes on where the wrapper has reduced them: a step may have several
passes. For that a hook on the parameters asks autograd, as a pass begins, for a call at its end; DDP, which asks
later, is served later. Hooks cost a few microseconds each; once it is known which gradients come last in a pass, only
theirs stay, and those of parameters that had none yet.

On a GPU events of its stream take the place of the clock. An exchange, over NCCL or through host memory, keeps the
stream waiting: the time that it stands still is that between two events around the exchange.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from isochron._core import MachineUsage, cpu_seconds, process_usage

KEPT_HOOKS = 8
Span = tuple[Any, Any]  # two moments


class Waits:
    """When this worker waited for others, as moments of its device."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans: list[Span] = []
        self._inside = False  # one that is being counted
        self.count = 0  # of exchanges since take()
        self.runs = False  # a stopwatch that asks for them

    def now(self) -> Any:
        """On a GPU the moment at which its stream gets here."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Seconds; waits until a GPU has got there."""
        if not self._cuda:
            return end - begin
        begin.synchronize()
        end.synchronize()
        return begin.elapsed_time(end) / 1000.0

    def add(self, begin: Any, end: Any) -> None:
        self._spans.append((begin, end))

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Around an exchange; one inside another is part of it."""
        if self._inside:
            yield
            return
        self._inside = True
        begin = self.now()
        try:
            yield
        finally:
            self._inside = False
            self.add(begin, self.now())
            self.count += 1

    def take(self) -> list[Span]:
        """Those since the last call."""
        taken = self._spans
        self._spans, self.count = [], 0
        return taken


class Stopwatch:
    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._hooks: list[tuple[torch.nn.Parameter, Any]] = []
        self._order: list[list[torch.nn.Parameter]] | None = []  # of arrival in a step's passes; None: known
        self._unpredictable: set[int] = set()  # parameters whose hooks stay
        self._to_end = False
        self._in_pass = False
        self._started = 0.0
        self._start: Any = None
        self._own: Any = None  # the end of what this worker computed in the last pass
        self._passes: list[Span] = []  # from there to the end of what all have reduced
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
        self._started = time.perf_counter()
        self._cpu = cpu_seconds()
        self._start = self._waits.now()
        self._waits.runs = True

    def stop(self) -> None:
        """The last backward is over."""
        if self._to_end or self._own is None:
            self._passes = []
            self.end_own_part()

    @contextlib.contextmanager
    def without_reduction(self) -> Iterator[None]:
        """Around passes whose gradients stay this worker's own: nothing is waited for behind them."""
        known = len(self._passes)
        yield
        del self._passes[known:]

    def end_own_part(self) -> None:
        """This worker's gradients of the pass are there, as far as is known."""
        self._own = self._waits.now()

    def measure(self, waits: list[Span]) -> tuple[float, float, int]:
        """Seconds of computing, seconds of waiting until then, `waits` among them, and how many reductions came before
        the last one. Waits for the GPU if there is one."""
        self._waits.runs = False
        whole = self._since_start(self._own)
        earlier = [span for span in self._passes if span[0] is not self._own]
        waited = until = 0.0
        for begin, end in sorted(tuple(map(self._since_start, span)) for span in (*waits, *earlier)):
            waited += max(min(end, whole) - max(begin, until), 0.0)  # an exchange may be part of a reduction
            until = max(until, end)
        return max(whole - waited, 0.0), waited, len(earlier)

    def measure_reduction(self) -> float:
        """Seconds to the end of the last reduction; to that of the own part where nothing was reduced."""
        return self._since_start(self._passes[-1][1] if self._passes else self._own)

    def _since_start(self, moment: Any) -> float:
        return self._waits.between(self._start, moment)

    @property
    def saw_gradients(self) -> bool:
        return self._own is not None

    def newly_seen(self) -> set[int]:
        """The parameters (by id) that had a gradient in the step under way, in a step that finds out which do."""
        return {id(parameter) for one in self._order or () for parameter in one}

    @property
    def started(self) -> float:
        return self._started

    def usage(self, device: torch.device, seconds: float) -> MachineUsage:
        """What this process took of its machine in the seconds since start(); on a GPU memory is the GPU's."""
        usage = process_usage(self._cpu, seconds)
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            usage.memory, usage.peak_memory = 1.0 - free / total, torch.cuda.max_memory_reserved(device) / total
        return usage

    def _note(self, parameter: torch.Tensor) -> None:
        if not self._in_pass:
            self._in_pass = True
            call_at_end_of_pass(self._end_computing)
            if self._order is not None:
                self._order.append([])
        if self._order:
            self._order[-1].append(parameter)  # type: ignore[arg-type]

    def _end_computing(self) -> None:
        self.end_own_part()
        call_at_end_of_pass(self._end_pass)  # behind the wrapper's own call, which waits for the reduction

    def _end_pass(self) -> None:
        self._passes.append((self._own, self._waits.now()))
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


def call_at_end_of_pass(call: Callable[[], None]) -> None:
    """Calls at the end of the backward pass under way, in the order of asking; a call may ask for another one."""
    torch.autograd.Variable._execution_engine.queue_callback(call)  # type: ignore[attr-defined]
