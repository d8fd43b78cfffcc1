"""What a job is told with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from isochron._core import Worker
from isochron.options import SharedOptions


@dataclass(kw_only=True)
class JobOptions(SharedOptions):
    """The options of `isochron.torch.Job`; see docs/pytorch.md."""

    PLACE: ClassVar[str] = "in Python"
    SYNCS: ClassVar[tuple[str, ...]] = ("bsp", "asp", "ssp")
    NUMBERS: ClassVar[tuple[str, ...]] = ("stop", "skip", "ignore")
    BAD_SAMPLES: ClassVar[tuple[str, ...]] = ("stop", "skip")

    numbers: str = "stop"  # before the optimizer's step, which "skip" leaves out; with asp and ssp it is "ignore"
    on_bad_sample: str = "stop"  # at which the dataset fails: the job ends everywhere; "skip": it goes on without it
    reseed: bool = True  # torch.manual_seed by (seed, step, rank) before every step: dropout that a resume repeats
    device: torch.device | str | None = None  # None: the GPU of the local rank if there is one, else the CPU
    backend: str | None = None  # of torch.distributed, if the group is still to be made
    elastic: bool | None = None  # survivors of a lost worker go on; None: if the launcher and the backend let them
    handle_signals: bool = False  # SIGTERM and SIGINT on any worker end the loops of all at the same step
    dynamic: bool = True  # batches say that their first dimension changes, for torch.compile
    tensorboard: Any = None  # a folder or a SummaryWriter
    on_event: Callable[[Any], None] | None = None
    ddp: dict[str, Any] = field(default_factory=dict)  # further arguments of DistributedDataParallel

    def validate(self) -> None:
        super().validate()
        if self.on_bad_sample not in self.BAD_SAMPLES:
            raise ValueError(f"on_bad_sample is {self.on_bad_sample!r}; permitted: {', '.join(self.BAD_SAMPLES)}")
        if not self.asynchronous:
            return
        if self.on_bad_sample == "skip":
            raise ValueError(f"on_bad_sample is 'skip' with sync '{self.sync}'; permitted: stop, or with sync 'bsp'")
        if self.numbers == "skip":
            raise ValueError(f"numbers is 'skip' with sync '{self.sync}'; permitted: stop, ignore")
        if self.ddp:
            raise ValueError(f"ddp is {self.ddp!r} with sync '{self.sync}', which wraps no model; permitted: nothing")

    def check_skipping(self, size: int, elastic: bool) -> None:
        if self.on_bad_sample == "skip" and size > 1 and not elastic:
            raise ValueError("on_bad_sample is 'skip' in a job that is not elastic; permitted: stop (see elastic=)")

    def check_dataset(self, stream: bool) -> None:
        if self.on_bad_sample == "skip" and stream:
            raise ValueError("the dataset is iterable with on_bad_sample 'skip'; permitted: one with __getitem__")

    def shared(self) -> dict[str, str]:
        return {**super().shared(), "on_bad_sample": self.on_bad_sample}

    def describe(self, id: int) -> Worker:
        return Worker(id, **self.described(id, self.kind))
