"""What every job is told, whatever trains it. The names are those of the C++ JobOptions and the program's options."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from isochron._core import NO_LIMIT

ALL_SYNCS = ("bsp", "asp", "ssp")
STANDARD_STALENESS = 3
LAST_BATCHES = ("keep", "drop")
PUSH_RATES = ("none", "batch-linear", "batch-sqrt", "staleness", "batch-linear+staleness", "batch-sqrt+staleness")
RATES = ("none", "linear", "sqrt", "legw")
WEIGHTINGS = ("exact", "mean")


@dataclass(kw_only=True)
class SharedOptions:
    """A framework's JobOptions add what only it has."""

    PLACE: ClassVar[str]  # in errors
    SYNCS: ClassVar[tuple[str, ...]] = ("bsp",)  # that it knows
    NUMBERS: ClassVar[tuple[str, ...]]  # permitted

    # What the workers share; all must give the same.
    global_batch: int  # B, 1 or more
    policy: str = "isochron"  # with options after a colon: "omnilearn:dead-band=0.1"
    sync: str = "bsp"  # all in step; "asp": everybody goes on alone; "ssp": at most `staleness` ahead of the slowest
    staleness: int | None = None  # ssp: iterations, 0 or more; None: 3
    push_rate: str = "none"  # asp, ssp: how an update's rate follows its batch and its staleness
    momentum_correction: bool = False  # asp, ssp: less momentum, since asynchrony adds some
    seed: int = 0  # of the order of the samples
    last_batch: str = "keep"  # the last step of an epoch takes what is left; "drop": it is left out
    rate: str = "none"  # how the learning rate follows B: none, linear, sqrt, legw
    reference_batch: int = 0  # the batch that the learning rate was tuned for; 0: B
    warmup_steps: float = 0.0
    sync_batch_norm: bool = True  # statistics over the global batch; False: over this worker's share alone
    numbers: str = "ignore"  # what is done about numbers that are not finite
    weighting: str = "exact"  # "mean": as the plain framework does; wrong for unequal batches, for comparison only

    # What this worker says of itself.
    name: str = ""  # for people; empty: worker-K
    kind: str = ""  # workers of one kind share the shape of their time curve; empty: the device's type
    weight: float = 0.0  # nominal relative speed; 0: unknown
    min_batch: int = 1
    max_batch: int = NO_LIMIT  # what memory holds
    granularity: int = 1  # its batch sizes are multiples of this: fewer shapes for compilers

    timeout: float = 300.0  # seconds, of every exchange
    log: str | os.PathLike[str] | None = None  # a run log, which the first worker writes
    on_step: Callable[[Any], None] | None = None  # told of every finished step, on every worker

    def validate(self) -> None:
        """Raises ValueError naming the field, the value and what is permitted."""
        if self.sync in ALL_SYNCS and self.sync not in self.SYNCS:
            raise ValueError(f"sync is '{self.sync}'; permitted {self.PLACE} so far: {', '.join(self.SYNCS)}")
        if self.rate == "adascale":
            raise ValueError(f"rate is 'adascale'; permitted in Python so far: {', '.join(RATES)}")
        for name, permitted in (
            ("sync", self.SYNCS),
            ("last_batch", LAST_BATCHES),
            ("rate", RATES),
            ("push_rate", PUSH_RATES),
            ("numbers", self.NUMBERS),
            ("weighting", WEIGHTINGS),
        ):
            value = getattr(self, name)
            if value not in permitted:
                raise ValueError(f"{name} is {value!r}; permitted: {', '.join(permitted)}")
        for name, least in (("global_batch", 1), ("min_batch", 0), ("max_batch", 1), ("granularity", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; permitted: a whole number, {least} or more")
        if not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout!r}; permitted: seconds above 0")
        self._validate_asynchrony()

    def _validate_asynchrony(self) -> None:
        """What is said of it must not be said in vain, and what needs a global step must not be asked for with it."""
        if self.staleness is not None and self.sync != "ssp":
            raise ValueError(f"staleness is {self.staleness!r} with sync '{self.sync}'; permitted: with sync 'ssp'")
        whole = isinstance(self.staleness, int) and not isinstance(self.staleness, bool)
        if self.staleness is not None and (not whole or self.staleness < 0):
            raise ValueError(f"staleness is {self.staleness!r}; permitted: a whole number, 0 or more")
        for name in ("push_rate", "momentum_correction"):
            value = getattr(self, name)
            if value not in ("none", False) and not self.asynchronous:
                raise ValueError(f"{name} is {value!r} with sync '{self.sync}'; permitted: with sync 'asp' or 'ssp'")
        if self.asynchronous and self.weighting != "exact":
            raise ValueError(f"weighting is '{self.weighting}' with sync '{self.sync}'; permitted: exact")
        if self.asynchronous and self.min_batch < 1:
            raise ValueError(f"min_batch is {self.min_batch} with sync '{self.sync}'; permitted: 1 or more")

    @property
    def asynchronous(self) -> bool:
        return self.sync != "bsp"

    @property
    def bound(self) -> int | None:
        """Iterations that a worker may be ahead of the slowest; None: any number."""
        if self.sync != "ssp":
            return None
        return STANDARD_STALENESS if self.staleness is None else self.staleness

    def shared(self) -> dict[str, str]:
        """What must be the same on all workers."""
        names = ("global_batch", "policy", "sync", "staleness", "push_rate", "momentum_correction", "seed",
                 "last_batch", "rate", "reference_batch", "warmup_steps", "sync_batch_norm", "numbers",
                 "weighting")  # fmt: skip
        return {name: str(getattr(self, name)) for name in names}

    def described(self, rank: int, device: str) -> dict[str, Any]:
        """This worker, as the arguments of _core.Worker less the id."""
        return {
            "kind": self.kind or device,
            "weight": self.weight,
            "min_batch": self.min_batch,
            "max_batch": min(self.max_batch, self.global_batch),
            "granularity": self.granularity,
            "name": self.name or f"worker-{rank}",
        }
