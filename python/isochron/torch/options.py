"""What a job is told with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from isochron.keywords import JobKeywords
from isochron.options import SharedOptions

if TYPE_CHECKING:
    import torch


class TorchKeywords(JobKeywords, total=False):
    """The keywords of `isochron.torch.Job`."""

    reseed: bool
    device: torch.device | str | None
    backend: str | None
    elastic: bool | None
    dynamic: bool
    log: str | PathLike[str] | None
    tensorboard: Any
    on_step: Callable[[Any], None] | None
    on_event: Callable[[Any], None] | None
    ddp: dict[str, Any]


class JobOptions(SharedOptions):
    """The options of `isochron.torch.Job`; see docs/pytorch.md."""

    FRAMEWORK: ClassVar[str] = "torch"
    EXTRAS: ClassVar[dict[str, Any]] = {
        "reseed": True,  # torch.manual_seed by (seed, step, rank) before every step: dropout that a resume repeats
        "device": None,  # torch.device or str; None: the GPU of the local rank if there is one, else the CPU
        "backend": None,  # of torch.distributed, if the group is still to be made
        "elastic": None,  # survivors of a lost worker go on; None: if the launcher and the backend let them
        "dynamic": True,  # batches say that their first dimension changes, for torch.compile
        "log": None,  # a run log, which the first worker writes
        "tensorboard": None,  # a folder or a SummaryWriter
        "on_step": None,  # told of every finished step, on every worker
        "on_event": None,  # told of deaths, joins and so on, on every worker
        "ddp": {},  # further arguments of DistributedDataParallel
    }

    def validate(self) -> None:
        super().validate()
        if self.ddp and self.sync != "bsp":
            raise ValueError(f"ddp is {self.ddp!r} with sync '{self.sync}', which wraps no model; permitted: nothing")

    def check_skipping(self, size: int, elastic: bool) -> None:
        if self.on_bad_sample == "skip" and size > 1 and not elastic:
            raise ValueError("on_bad_sample is 'skip' in a job that is not elastic; permitted: stop (see elastic=)")

    def check_dataset(self, stream: bool) -> None:
        if self.on_bad_sample == "skip" and stream:
            raise ValueError("the dataset is iterable with on_bad_sample 'skip'; permitted: one with __getitem__")
        if self.sync != "bsp" and stream:
            raise ValueError(f"the dataset is iterable with sync '{self.sync}'; permitted: one with __getitem__")
