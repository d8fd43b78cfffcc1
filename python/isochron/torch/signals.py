"""SIGTERM and SIGINT as a wish to stop."""

from __future__ import annotations

import signal
from types import FrameType


class StopSignal:
    def __init__(self) -> None:
        self._received = 0
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = number

    def received(self) -> int:
        """0: none."""
        return self._received

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
