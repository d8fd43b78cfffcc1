"""Isochron in Python: run logs as data frames, and pictures of them.

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
    from isochron.run import Run, RunLogError, read_run

__all__ = ["Run", "RunLogError", "plot", "read_run"]

_HOMES = {"Run": "isochron.run", "RunLogError": "isochron.run", "read_run": "isochron.run"}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return importlib.import_module("isochron.plot")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'isochron' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
