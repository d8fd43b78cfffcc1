"""Isochron in Python: training with PyTorch, run logs as data frames, and pictures of them.

    import isochron.torch                                   # isochron.torch.Job: docs/pytorch.md

    import isochron
    run = isochron.read_run("run.jsonl")
    run.steps, run.workers, run.events, run.evaluations    # pandas or polars frames
    isochron.plot.batch_sizes(run)                          # a matplotlib figure

Importing this takes no time and imports none of those libraries: each comes with the first call that needs it.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers know it; typing itself would take most of the time of importing this
if TYPE_CHECKING:
    from typing import Any

    from isochron import plot
    from isochron._core import VERSION as __version__
    from isochron._core import policies
    from isochron.errors import (
        Error,
        InvariantError,
        NonFiniteError,
        PeerError,
        PeerLostError,
        SampleError,
        TimeoutError,
    )
    from isochron.run import Run, RunLogError, read_run

__all__ = [
    "Error",
    "InvariantError",
    "NonFiniteError",
    "PeerError",
    "PeerLostError",
    "Run",
    "RunLogError",
    "SampleError",
    "TimeoutError",
    "__version__",
    "plot",
    "policies",
    "read_run",
]

_HOMES = {
    **dict.fromkeys(("Run", "RunLogError", "read_run"), "isochron.run"),
    **dict.fromkeys(("Error", "InvariantError", "NonFiniteError", "SampleError"), "isochron.errors"),
    **dict.fromkeys(("PeerError", "PeerLostError", "TimeoutError"), "isochron.errors"),
    "policies": "isochron._core",
}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return importlib.import_module("isochron.plot")
    if name == "__version__":
        return importlib.import_module("isochron._core").VERSION
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'isochron' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
