"""What a job is told with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar

from isochron.keywords import TensorFlowJobKeywords
from isochron.options import SharedOptions


class TensorFlowKeywords(TensorFlowJobKeywords, total=False):
    """The keywords of `isochron.tensorflow.Job` besides those of every framework."""

    log: str | PathLike[str] | None
    """A run log, which the first worker writes."""
    on_step: Callable[[Any], None] | None
    """Called with the job after every step."""


class JobOptions(SharedOptions):
    """What `isochron.tensorflow.Job` is told; see docs/tensorflow.md."""

    FRAMEWORK: ClassVar[str] = "tensorflow"
    EXTRAS: ClassVar[dict[str, Any]] = {
        "log": None,
        "on_step": None,
    }
