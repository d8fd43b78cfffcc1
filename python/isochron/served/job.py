"""What the jobs of all frameworks have in common when their workers are not in step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from isochron._core import Assignment, Decision, Ledger
from isochron.errors import Error
from isochron.served.session import Session

if TYPE_CHECKING:
    _Job = Any
else:
    _Job = object


class ServedJob(_Job):
    """Stands before the framework's own Job among the bases of its AsyncJob."""

    _session: Session | None = None

    @property
    def _running(self) -> Session:
        assert self._session is not None
        return self._session

    @property
    def _order(self) -> Assignment:
        return self._running.order

    @property
    def _at_barrier(self) -> bool:
        """All are together."""
        return self._session is None or self._session.at_barrier

    @property
    def decision(self) -> Decision:
        """As the coordinator has said it last."""
        return self._replica.decision if self._at_barrier else self._order.decision

    @property
    def ledger(self) -> Ledger:
        return super().ledger if self._session is None else self._session.ledger

    def _steps_dealt(self) -> int:
        """The step of the whole job: so many global batches' samples were dealt."""
        if self._source is None:
            return self._replica.step
        position = self._replica.position if self._at_barrier else self._order.first
        return self.epoch * self.steps_per_epoch + position // self.options.global_batch

    @property
    def _corrected_for(self) -> int:
        """So many workers add momentum by their asynchrony, which is taken off; 0: it is not."""
        return self.size if self.options.momentum_correction and self.options.bound != 0 else 0

    def _require_barrier(self, what: str) -> None:
        if not self._at_barrier:
            sync = self.options.sync
            raise Error(f"{what} in the middle of an epoch with sync '{sync}'; permitted: when its loop is over")

    def _require_unbegun(self, what: str) -> None:
        if self._session is not None:
            raise Error(f"{what} after the first batch; the shards have begun")

    def sum(self, values: Any) -> list[float]:
        self._require_barrier("sum()")
        return super().sum(values)

    def restore(self, path: str | os.PathLike[str]) -> None:
        self._require_unbegun("restore()")
        super().restore(path)

    def _leave(self, orderly: bool) -> None:
        """If it is not orderly, the others take this worker for lost."""
        if self._session is not None:
            self._session.close(orderly)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._leave(orderly=False)
        super().__exit__(kind, error, trace)
