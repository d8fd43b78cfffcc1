"""Gradients of jobs with workers on GPUs and on CPUs: each side averages by what is quickest there, and leaders join
the two.

With K workers every one divides its gradients by K. Then, for every bucket of DDP's:
  a) a side adds its own up, GPUs over NCCL, CPUs over gloo;
  b) the first worker of each side adds the two sums up, over gloo, through pinned host memory where it is on a GPU;
  c) it tells the others of its side.
Losses are weighted by b_k K / B, so that this sum is the gradient of the global batch, as everywhere.

a) and b) go on while backward computes. NCCL and gloo need exchanges of a group in one order on all of its workers,
which b) of one bucket and a) of the next have not; so c) comes behind a) of the last bucket, and a thread of its own
starts all of them. A second one does b), since it waits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

Gpu = tuple[str, bool]


@dataclass
class Sides:
    """The groups of this worker's side, as long as the members of the job stay the same."""

    size: int  # workers of the job
    within: dist.ProcessGroup | None  # None: it is the only one on its side
    across: dist.ProcessGroup | None  # of the two leaders; None: another one leads, or there is no other side
    joined: bool  # there is another side
    made: list[dist.ProcessGroup]  # those, and others that only count


def sides_of(gpus: list[Gpu | None], by_nccl: Callable[[list[Gpu | None]], bool]) -> list[str] | None:
    """The side of every worker, from what all say of their GPUs; None where all exchange alike: with one GPU, or with
    GPUs that NCCL does not take, there is nothing that it could do better than gloo over all."""
    known = [gpu for gpu in gpus if gpu is not None]
    if len(known) < 2 or len(known) == len(gpus) or not by_nccl(list(known)):
        return None
    return ["cpu" if gpu is None else "gpu" for gpu in gpus]


Results = list[tuple[Any, Any]]  # futures and what they are to be given


class _Line:
    """A thread that makes calls one after the other, and gives away the results when nothing of a call is left: it
    holds groups, whose connections close when nobody does any more. It ends with the process, whatever it waits for."""

    def __init__(self, name: str, on_stream: Callable[[], Any]) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Results] | None] = queue.SimpleQueue()
        self._on_stream = on_stream  # on a GPU a future is ready when the stream that it was given on has got there
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, call: Callable[[], Results] | None) -> None:
        """None: no more of them."""
        self._calls.put(call)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            results = call()
            del call
            with self._on_stream():
                for future, value in results:
                    future.set_result(value)
            results.clear()


@dataclass
class _Bucket:
    numbers: torch.Tensor
    ready: Any  # on a GPU, the event behind its gradients
    averaged: torch.futures.Future[Any]  # its value is an error if it failed
    reduced: Any = None  # a) under way
    joined: concurrent.futures.Future[Any] | None = None  # b), of leaders; its value is an error if it failed


class SidedAverage:
    """The state of a communication hook."""

    def __init__(self, group: dist.ProcessGroup | None, world: Any, device: torch.device) -> None:
        self.process_group = group
        self._world = world
        self._device = device
        self._cuda = device.type == "cuda"
        self._pinned: dict[torch.dtype, torch.Tensor] = {}
        self._streams = (torch.cuda.Stream(device), torch.cuda.Stream(device)) if self._cuda else (None, None)
        self._order: _Line | None = None
        self._joining: _Line | None = None
        self._begun: list[_Bucket] = []
        self._failure = ""  # of the pass under way

    def follow(self, group: dist.ProcessGroup | None) -> None:
        """On other groups threads are new: one of the old ones may still wait for who is lost."""
        self.process_group = group
        for line in (self._order, self._joining):
            if line is not None:
                line.put(None)
        self._order = self._joining = None
        self._begun, self._failure = [], ""

    def remember(self) -> None:
        """Nothing of a step stays here."""

    def undo(self) -> None:
        """Likewise."""

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sides: Sides = self._world.sides
        if self._order is None:
            self._order = _Line("isochron-sides", lambda: self._on_stream(0))
            self._joining = _Line("isochron-joining", lambda: self._on_stream(1))
        numbers = bucket.buffer().div_(sides.size)
        ready = None
        if self._cuda:
            ready = torch.cuda.Event()
            ready.record()
        averaged: torch.futures.Future[Any] = torch.futures.Future(devices=[self._device] if self._cuda else None)
        if self._world.failure is not None:
            # An exchange before this one has failed. Others of this side may still be in it, waiting for this worker,
            # and have nobody to tell them as long as this one waits for them: gloo over all would fail at once.
            averaged.set_result(RuntimeError(f"gloo: {self._world.failure}"))
        else:
            one, first, last = _Bucket(numbers, ready, averaged), bucket.index() == 0, bucket.is_last()
            self._order.put(lambda: self._reduce(sides, one, first, last))
        return averaged.then(_value_or_error)

    # In the first thread.

    def _reduce(self, sides: Sides, one: _Bucket, first: bool, last: bool) -> Results:
        if first:
            self._begun, self._failure = [], ""  # a pass may not have come to its end
        self._begun.append(one)
        try:
            if not self._failure:
                with self._on_stream(0):
                    self._start(sides, one)
                    if last:
                        self._finish(sides)
        except Exception as error:
            self._failure = str(error) or repr(error)
        if not last and not self._failure:
            return []
        begun, self._begun = self._begun, []
        return [(each.averaged, RuntimeError(self._failure) if self._failure else each.numbers) for each in begun]

    def _start(self, sides: Sides, one: _Bucket) -> None:
        if one.ready is not None:
            torch.cuda.current_stream().wait_event(one.ready)
        if sides.within is not None:
            one.reduced = dist.all_reduce(one.numbers, group=sides.within, async_op=True)
        if sides.across is not None and self._joining is not None:
            joined = one.joined = concurrent.futures.Future()
            self._joining.put(lambda: [(joined, self._join_or_fail(sides, one))])

    def _finish(self, sides: Sides) -> None:
        told = []
        for one in self._begun:
            behind = one.joined.result() if one.joined is not None else None
            if isinstance(behind, Exception):
                raise RuntimeError(str(behind))
            if behind is not None:
                torch.cuda.current_stream().wait_event(behind)
            if one.reduced is not None:
                one.reduced.wait()  # gloo has several threads, which would write into the same place at once
            tells = sides.joined and sides.within is not None
            told.append(dist.broadcast(one.numbers, group=sides.within, group_src=0, async_op=True) if tells else None)
        for one, telling in zip(self._begun, told, strict=True):
            if telling is not None:
                telling.wait()

    # In the second one.

    def _join_or_fail(self, sides: Sides, one: _Bucket) -> Any:
        try:
            return self._join(sides, one)
        except Exception as error:
            return RuntimeError(str(error))  # without frames, which hold the group

    def _join(self, sides: Sides, one: _Bucket) -> Any:
        """Adds the sums of both sides up; on a GPU the event behind it."""
        with self._on_stream(1):
            if one.reduced is not None:
                one.reduced.wait()
            if not self._cuda:
                dist.all_reduce(one.numbers, group=sides.across)
                return None
            stream = torch.cuda.current_stream()
            stream.wait_event(one.ready)
            host = self._host_memory(one.numbers)
            host.copy_(one.numbers, non_blocking=True)
            stream.synchronize()
            dist.all_reduce(host, group=sides.across)
            one.numbers.copy_(host, non_blocking=True)  # before the next bucket's copy, on the same stream
            behind = torch.cuda.Event()
            behind.record()
            return behind

    def _host_memory(self, like: torch.Tensor) -> torch.Tensor:
        kept = self._pinned.get(like.dtype)
        if kept is None or kept.numel() < like.numel():
            kept = self._pinned[like.dtype] = torch.empty(like.numel(), dtype=like.dtype, pin_memory=True)
        return kept[: like.numel()]

    def _on_stream(self, number: int) -> Any:
        return torch.cuda.stream(self._streams[number]) if self._cuda else contextlib.nullcontext()


def _value_or_error(averaged: torch.futures.Future[Any]) -> torch.Tensor:
    """A future that is given an error raises it in Python alone: DDP would take it for a gradient."""
    value = averaged.value()
    if isinstance(value, BaseException):
        raise value
    return value
