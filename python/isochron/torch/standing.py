"""Where a job is, for its loop to read."""

from __future__ import annotations

from typing import Any

from isochron._core import Decision, Ledger
from isochron.errors import Error
from isochron.torch.report import StepRecord
from isochron.torch.source import Source
from isochron.torch.world import World


class Standing:
    """The part of a job that changes nothing."""

    _world: World
    _decision: Decision
    _source: Source | None
    _resumed: dict[str, Any] | None
    _ledger: Ledger | None
    _record: StepRecord | None
    _stopping: bool
    _stop_signal: int

    @property
    def rank(self) -> int:
        """Among the workers that are there; changes when one is lost."""
        return self._world.rank

    @property
    def size(self) -> int:
        return self._world.size

    @property
    def is_first(self) -> bool:
        return self._world.rank == 0

    @property
    def step(self) -> int:
        """Of the step under way, or the coming one between two steps."""
        return self._decision.step

    @property
    def epoch(self) -> int:
        if self._source is not None:
            return self._source.epoch
        return int(self._resumed["epoch"]) if self._resumed is not None else 0

    @property
    def steps_per_epoch(self) -> int:
        if self._source is None:
            raise Error("steps_per_epoch before loader()")
        return self._source.steps_per_epoch

    @property
    def decision(self) -> Decision:
        """Of the step under way, or the coming one."""
        return self._decision

    @property
    def batch_sizes(self) -> list[int]:
        return self._decision.batch_sizes

    @property
    def last_step(self) -> StepRecord | None:
        """The last finished one."""
        return self._record

    @property
    def ledger(self) -> Ledger:
        """Which positions of the epoch were used."""
        if self._ledger is None:
            raise Error("ledger before loader()")
        return self._ledger

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def stop_signal(self) -> int:
        """The signal that asked for it on any worker; 0: none."""
        return self._stop_signal
