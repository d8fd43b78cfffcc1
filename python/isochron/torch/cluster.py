"""What `isochron launch --cluster` tells a worker by variables, and what it wants to know: the step, so that changes of
the emulated cluster come at theirs. Variables are defaults: what the script says holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from isochron._core import StepFile

_TEXTS = {"name": "ISOCHRON_WORKER_NAME", "kind": "ISOCHRON_WORKER_KIND"}
_NUMBERS = {
    "min_batch": ("ISOCHRON_MIN_BATCH", 1),
    "max_batch": ("ISOCHRON_MAX_BATCH", 0),
    "granularity": ("ISOCHRON_GRANULARITY", 1),
}


def take_defaults(options: Any, variables: Mapping[str, str] = os.environ) -> None:
    """Fills in what the script left open. Raises ValueError naming a variable that is no number."""
    for field, variable in _TEXTS.items():
        if not getattr(options, field):
            setattr(options, field, variables.get(variable, ""))
    for field, (variable, standard) in _NUMBERS.items():
        text = variables.get(variable, "")
        if text and getattr(options, field) == standard:
            if not text.isdecimal():
                raise ValueError(f"{variable} is '{text}'; permitted: a whole number, 0 or more")
            setattr(options, field, int(text))


def find_step_file(variables: Mapping[str, str] = os.environ) -> StepFile | None:
    path = variables.get("ISOCHRON_STEP_FILE")
    return StepFile.open(path) if path else None
