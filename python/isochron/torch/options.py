"""What a job is told with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from isochron.keywords import TorchJobKeywords
from isochron.options import SharedOptions

if TYPE_CHECKING:
    import torch


class TorchKeywords(TorchJobKeywords, total=False):
    """The keywords of `isochron.torch.Job` besides those of every framework."""

    reseed: bool
    """torch.manual_seed by (seed, step, rank) before every step: dropout that a resume repeats."""
    device: torch.device | str | None
    """None: the GPU of the local rank if there is one, else the CPU."""
    backend: str | None
    """The backend of torch.distributed, if the group is still to be made."""
    elastic: bool | None
    """Survivors of a lost worker go on; None: if the launcher and the backend let them."""
    dynamic: bool
    """Batches say that their first dimension changes, for torch.compile."""
    log: str | PathLike[str] | None
    """A run log, which the first worker writes."""
    tensorboard: Any
    """A folder or a SummaryWriter."""
    on_step: Callable[[Any], None] | None
    """Told of every finished step, on every worker."""
    on_event: Callable[[Any], None] | None
    """Told of deaths, joins and so on, on every worker."""
    ddp: dict[str, Any]
    """Further arguments of DistributedDataParallel."""


class JobOptions(SharedOptions):
    """The options of `isochron.torch.Job`; see docs/pytorch.md."""

    FRAMEWORK: ClassVar[str] = "torch"
    EXTRAS: ClassVar[dict[str, Any]] = {
        "reseed": True,
        "device": None,
        "backend": None,
        "elastic": None,
        "dynamic": True,
        "log": None,
        "tensorboard": None,
        "on_step": None,
        "on_event": None,
        "ddp": {},
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
