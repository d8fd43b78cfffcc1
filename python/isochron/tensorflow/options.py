"""What a job is told with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar

from isochron.keywords import JobKeywords
from isochron.options import SharedOptions


class TensorFlowKeywords(JobKeywords, total=False):
    """The keywords of `isochron.tensorflow.Job`."""

    log: str | PathLike[str] | None
    on_step: Callable[[Any], None] | None


class JobOptions(SharedOptions):
    """What `isochron.tensorflow.Job` is told; see docs/tensorflow.md."""

    FRAMEWORK: ClassVar[str] = "tensorflow"
    EXTRAS: ClassVar[dict[str, Any]] = {
        "log": None,  # a run log, which the first worker writes
        "on_step": None,  # called with the job after every step
    }
