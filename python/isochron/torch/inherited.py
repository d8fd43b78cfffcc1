"""Connections of process groups, which a forked process must not keep.

gloo tells the others that it gives up a group by closing its connections. A loader process that was forked meanwhile,
ours or one of PyTorch's DataLoader, would hold them open, and the others would wait until their time-out.
"""

from __future__ import annotations

import contextlib
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
