"""What a job is told with TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from isochron.options import SharedOptions


@dataclass(kw_only=True)
class JobOptions(SharedOptions):
    """Of `isochron.tensorflow.Job`; see docs/tensorflow.md."""

    PLACE: ClassVar[str] = "with TensorFlow"
    SYNCS: ClassVar[tuple[str, ...]] = ("bsp", "asp", "ssp")
    NUMBERS: ClassVar[tuple[str, ...]] = ("stop", "skip", "ignore")  # of a gradient
