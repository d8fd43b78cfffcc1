"""What a watched loop would gain: from what every worker has seen of the same steps to a run log and a sentence.

Hosts have clocks of their own. What all workers have in common is the end of an exchange, which is the same moment for
all: so every worker's times are counted from there.
"""

from __future__ import annotations

import logging
import math
import statistics
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from isochron import _core
from isochron.__main__ import program
from isochron.log_files import begin
from isochron.summary import WORTH_A_WORD

log = logging.getLogger("isochron")

DRAWING_SECONDS = 60.0  # the loop waits for the page


class Forecast:
    """`told` by rank: an introduction, the share that a probe has found fixed (None: unknown), readings of steps."""

    def __init__(self, told: list[dict[str, Any]]) -> None:
        self._workers = _core.agree([_core.Introduction.decode(one["introduction"]) for one in told])
        self.records = self._make_records([one["readings"] for one in told])
        self._global_batch = sum(self.records[-1].batch_sizes) if self.records else 0
        meter = _core.Meter(max(self._global_batch, 1), self._workers)
        for record in self.records:
            meter.add(record)
        self._probed = all(one["fixed"] is not None for one in told)
        for worker in self._workers:
            alike = [one["fixed"] or 0.0 for one, other in zip(told, self._workers) if other.kind == worker.kind]
            meter.set_fixed_share(worker.id, statistics.median(alike))  # a probe is short, and so its noise is large
        self.gain = meter.best_over_equal_shares
        self.sentence = self._say()

    def _make_records(self, readings: list[list[list[float] | None]]) -> list[_core.StepRecord]:
        """Records of the steps that all workers have seen as such; the first worker's clock counts."""
        records: list[_core.StepRecord] = []
        for ranks in zip(*readings):
            if any(one is None for one in ranks):
                continue
            _, start, _, _, finished, ended = ranks[0]
            common = start + finished
            reports = []
            for batch, _, seconds, waited, own_finished, _ in ranks:
                report = _core.StepReport()
                report.batch, report.start = int(batch), common - own_finished
                report.seconds, report.waited, report.loss = seconds, waited, math.nan
                reports.append(report)
            records.append(_core.step_record(reports, self._workers, len(records), common, start + ended))
        return records

    def _say(self) -> str:
        count = len(self._workers)
        if count < 2:
            return "there is one worker: nobody waits, and nothing is to be gained."
        if not self.records or math.isnan(self.gain):
            return f"too little was seen of {count} workers, or their times vary too much: nothing can be said."
        columns = list(zip(*(record.workers for record in self.records)))
        seconds = [statistics.median(one.compute_seconds for one in column) for column in columns]
        slowest = max(range(count), key=seconds.__getitem__)
        waiting = statistics.median(
            statistics.mean(one.wait_seconds for place, one in enumerate(record.workers) if place != slowest)
            / max(record.seconds, 1e-9)
            for record in self.records
        )
        name = self._workers[slowest].name
        sentence = f"{name} is the slowest of {count} workers; the others wait {100 * waiting:.0f} % of a step for it."
        if self.gain < WORTH_A_WORD:
            return f"{count} workers are about equally fast; equal shares fit them, and nothing is to be gained."
        about = "about" if self._probed else "up to"
        return f"{sentence} With Isochron this job would be {about} {self.gain:.1f} times as fast."

    def write(self, path: Path) -> bool:
        """As a run log of equal shares, for `isochron report`; whether it could be begun."""
        what = path, "watch", _core.JobSettings(global_batch=self._global_batch, policy="uniform"), self._workers, 0
        page = begin(partial(_core.RunLog, *what, warn=log.warning, go_on=False))
        if page is None:
            return False
        for record in self.records:
            page.write(record)
        end = self.records[-1].start_seconds + self.records[-1].seconds
        page.write(_core.EventRecord(len(self.records), end, _core.Event.FORECAST, self._workers[0].id, self.sentence))
        page.end()
        return True


def draw(path: Path) -> Path | None:
    """The page of a run log, beside it; None where there is no program that draws it, or it cannot be written."""
    page, tool = path.with_suffix(".html"), program()
    if tool is None:
        return None
    command = [str(word) for word in (tool, "report", path, "-o", page)]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, timeout=DRAWING_SECONDS)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("no page: %s", error)
        return None
    if result.returncode != 0:
        log.warning("no page: %s", result.stderr.strip().partition("\n")[0] or f"{tool} ended with {result.returncode}")
        return None
    return page
