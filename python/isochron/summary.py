"""What a job has achieved until now, for its own script: `print(job.summary())`."""

from __future__ import annotations

import dataclasses
import math

from isochron import _core

WORTH_A_WORD = 1.05  # times equal shares; less is not worth a word


@dataclasses.dataclass(frozen=True)
class Summary:
    """NaN where nothing says. The first steps' shares are learned, so that they are slower."""

    steps: int
    samples_per_second: float
    balance: float  # mean over longest compute time of a step, 1: nobody waited
    over_equal_shares: float  # times as fast as with equal shares, by the last steps; an estimate

    def __str__(self) -> str:
        text = f"{self.steps} steps, {self.samples_per_second:,.1f} samples per second"
        if not math.isnan(self.balance):
            text += f"; on average a worker waits {100 * (1 - self.balance):.0f} % of a step for the slowest one"
        if self.over_equal_shares >= WORTH_A_WORD:
            text += f"; in its last steps about {self.over_equal_shares:.1f} times as fast as with equal shares"
        return text


def summarize(meter: _core.Meter) -> Summary:
    return Summary(meter.steps, meter.samples_per_second, meter.balance, meter.over_equal_shares)
