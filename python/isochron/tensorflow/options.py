"""What a job is told with TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from isochron.options import SharedOptions


@dataclass(kw_only=True)
class JobOptions(SharedOptions):
    """What `isochron.tensorflow.Job` is told; see docs/tensorflow.md."""

    PLACE: ClassVar[str] = "with TensorFlow"
    SYNCS: ClassVar[tuple[str, ...]] = ("bsp", "asp", "ssp")
    NUMBERS: ClassVar[tuple[str, ...]] = ("stop", "skip", "ignore")
    TRANSPORTS: ClassVar[tuple[str, ...]] = ("tensorflow", "sockets")

    numbers: str = "stop"  # a gradient that is not finite ends the job; "skip": the step is left out
    transport: str = "tensorflow"  # asp, ssp: over its own servers and ports; "sockets" of our own are faster

    def validate(self) -> None:
        super().validate()
        if self.transport not in self.TRANSPORTS:
            raise ValueError(f"transport is {self.transport!r}; permitted: {', '.join(self.TRANSPORTS)}")
        if self.transport != "tensorflow" and not self.asynchronous:
            words = f"transport is '{self.transport}' with sync '{self.sync}'"
            raise ValueError(f"{words}; permitted: 'tensorflow', or with sync 'asp' or 'ssp'")
