"""What a forked process, a loader process of ours or of PyTorch's DataLoader, must not have of its parent.

Connections of process groups: gloo tells the others that it gives up a group by closing its connections; a forked
process would hold them open, and the others would wait until their time-out.

Garbage: a process group that the parent has done with may wait for Python's collector. If it came to that in the
forked process, the group's end would wait for threads that only the parent has, for ever.
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


os.register_at_fork(after_in_child=_let_go)
os.register_at_fork(after_in_child=gc.freeze)
