"""What a forked process, a loader process of ours or of PyTorch's DataLoader, must not have of its parent.

Connections of process groups: gloo tells the others that it gives up a group by closing its connections; a forked
process would hold them open, and the others would wait until their time-out.

Garbage: a process group that the parent has done with may wait for Python's collector. If it came to that in the
forked process, the group's end would wait for threads that only the parent has, for ever, or crash. So from before the
fork nothing is collected until the forked process leaves alone what it has inherited: threading, for one, runs code of
its own there first.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

_held: set[tuple[int, str]] = set()  # descriptors, each with what it was open for


def _sockets() -> set[tuple[int, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself is closed by now
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found.add((int(name), target))
    return found


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Connections that are made inside are not inherited."""
    global _held
    before = _sockets()
    yield
    now = _sockets()
    _held = (_held & now) | (now - before)


def _let_go() -> None:
    for descriptor, _ in _held & _sockets():
        os.close(descriptor)
    _held.clear()


_forks = 0  # under way, of several threads
_collects = True


def _hold_collector() -> None:
    global _forks, _collects
    if _forks == 0:
        _collects = gc.isenabled()
        gc.disable()
    _forks += 1


def _release_collector() -> None:
    global _forks
    _forks -= 1
    if _forks == 0 and _collects:
        gc.enable()


def _leave_garbage_alone() -> None:
    global _forks
    gc.freeze()
    _forks = 1  # this one: other threads stay with the parent
    _release_collector()


os.register_at_fork(after_in_child=_let_go)
os.register_at_fork(
    before=_hold_collector, after_in_parent=_release_collector, after_in_child=_leave_garbage_alone
)  # fmt: skip
