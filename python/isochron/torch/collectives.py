"""Collectives of torch.distributed that somebody else calls, counted as waiting: those of the loop itself, such as an
all_reduce of a loss for its log, and of libraries, such as Lightning's log(sync_dist=True) and Accelerate's gather().

As long as anybody listens, functions that count take their places in torch's modules; afterwards everything is as it
was. Who listens counts from its stopwatch's start to the step's report, on the thread on which it began to listen. A
collective with async_op=True is counted where its handle is waited for. Functions that a module has imported by their
names before the first job or watch was made are not seen.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist

from isochron.torch.stopwatch import Waits

# Who calls these waits for all others; NCCL's and gloo's alike.
COLLECTIVES = ("all_reduce", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object",
               "all_gather_single", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast",
               "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce",
               "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
               "scatter_object_list")  # fmt: skip
FUNCTIONAL = "torch.distributed._functional_collectives"  # what DTensor uses: they wait where their result is used

_listeners: list[tuple[weakref.ref[Waits], int]] = []  # with their threads
_undo: list[Callable[[], None]] = []


def listen(waits: Waits) -> None:
    """Has the collectives of this thread counted there, until it is told to leave() or is gone."""
    if not dist.is_available():
        return
    if not _listeners:
        for owner, name in _targets():
            if not hasattr(getattr(owner, name), "_isochron_counts"):
                _replace(owner, name)
    _listeners.append((weakref.ref(waits, _forget), threading.get_ident()))


def leave(waits: Waits) -> None:
    _keep(lambda one: one is not waits)


def _forget(_: Any) -> None:
    _keep(lambda one: True)


def _keep(wanted: Callable[[Waits], bool]) -> None:
    _listeners[:] = [(one, thread) for one, thread in _listeners if (waits := one()) is not None and wanted(waits)]
    while _undo and not _listeners:
        _undo.pop()()


def _targets() -> Iterator[tuple[Any, str]]:
    for name in COLLECTIVES:
        if hasattr(dist, name):
            yield dist, name
    yield torch._C._distributed_c10d.Work, "wait"
    if FUNCTIONAL in sys.modules:
        yield sys.modules[FUNCTIONAL], "wait_tensor"


def _counting() -> list[Waits]:
    here = threading.get_ident()
    known = [one() for one, thread in _listeners if thread == here]
    return [waits for waits in known if waits is not None and waits.runs]


def _replace(owner: Any, name: str) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def counted(*arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling() or keywords.get("async_op") or not (listening := _counting()):
            return function(*arguments, **keywords)
        with ExitStack() as stack:
            for waits in listening:
                stack.enter_context(waits.counted())
            return function(*arguments, **keywords)

    def put_back() -> None:
        if getattr(owner, name) is counted:  # else somebody has replaced it since, by a function that calls ours
            setattr(owner, name, function)

    counted._isochron_counts = True  # type: ignore[attr-defined]
    setattr(owner, name, counted)
    _undo.append(put_back)
