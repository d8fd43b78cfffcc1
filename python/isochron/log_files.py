"""Where a run log is to be, and whether it can be written there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from isochron._core import RunLog

log = logging.getLogger("isochron")


def trouble_of_writing(path: str | os.PathLike[str]) -> str:
    """Why a log cannot be written there; empty if it can."""
    there = Path(path)
    try:
        existed = there.exists()
        with open(there, "ab"):
            pass
        if not existed:
            there.unlink(missing_ok=True)  # another worker may have tried the same at the same time
    except OSError as error:
        return error.strerror or str(error)
    return ""


def refusal(path: str | os.PathLike[str] | None, trouble: str) -> ValueError:
    """What all workers raise if the first one cannot write the log."""
    return ValueError(f"log is {str(path)!r}; permitted: a file that the first worker can write ({trouble})")


def begin(make: Callable[[], RunLog]) -> RunLog | None:
    """The log of a run that is under way; None if it cannot be begun, which is no reason to end the run."""
    try:
        return make()
    except RuntimeError as error:
        log.warning("%s; the run goes on without a log", error)
        return None


def numbered(path: str | os.PathLike[str], number: int) -> Path:
    """The log of a job's dataset, counted from 0: run.jsonl, and of later ones run-2.jsonl and so on."""
    first = Path(path)
    return first.with_name(f"{first.stem}-{number + 1}{first.suffix}") if number > 0 else first
