"""Run logs: what `isochron train`, `compare` and `simulate` write with --log, as data frames.

A run log is JSON lines: a header, then a line per step, event or evaluation. Fields that this version does not know
become columns, or are in the header, as they are; lines of an unknown type are passed over. A last line that was cut
short (the run goes on, or ended badly) is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isochron._core import Event, balance
from isochron.frames import Library, make_frame

Record = dict[str, Any]

SCHEMA = 1
# What a step says of its workers, a list each, and what the column of `Run.workers` is called.
_WORKER_COLUMNS = {
    "workers": "worker",
    "batch_sizes": "batch",
    "starts": "start",
    "compute_seconds": "compute_seconds",
    "wait_seconds": "wait_seconds",
    "inner_wait_seconds": "inner_wait_seconds",
    "exchange_seconds": "exchange_seconds",
}
# The columns that a frame has even if the log is older than they are, or has no such line.
_STEP_COLUMNS = ("step", "epoch", "position", "start", "seconds", "samples", "samples_per_second", "balance", "loss",
                 "learning_rate_factor", "changed", "reason", "words")  # fmt: skip
_LONG_COLUMNS = ("step", "worker", "name", "kind", *tuple(_WORKER_COLUMNS.values())[1:])
_EVENT_COLUMNS = ("step", "seconds", "event", "worker", "words")
_EVALUATION_COLUMNS = ("step", "seconds", "loss", "accuracy")


class RunLogError(ValueError):
    """The file is no run log, or a line inside it is damaged."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run. The frames are made when they are first looked at, and kept."""

    path: str
    header: Mapping[str, Any]
    step_records: list[Record] = dataclasses.field(repr=False)
    event_records: list[Record] = dataclasses.field(repr=False)
    evaluation_records: list[Record] = dataclasses.field(repr=False)
    library: Library | None = None
    resumed_at: frozenset[int] = dataclasses.field(default=frozenset(), repr=False)  # a new process' first steps

    @property
    def label(self) -> str:
        """What a legend calls it: the policy, and the cluster if there is one."""
        policy, cluster = self.header.get("policy", ""), self.header.get("cluster", "")
        return f"{policy} on {cluster}" if cluster else policy or os.path.basename(self.path)

    @property
    def worker_names(self) -> dict[int, str]:
        """By id: those of the header, and those that joined."""
        names = {member["id"]: member["name"] for member in self.header.get("workers", [])}
        for event in self.event_records:
            if event.get("event") == Event.JOIN and event.get("words"):
                names.setdefault(event["worker"], event["words"])
        return names

    @functools.cached_property
    def training_seconds(self) -> list[float]:
        """When each step ended, in training time: what lies between steps (evaluations, checkpoints, recovery, turns of
        other runs in a comparison) is left out. As the report has it."""
        ends, trained, shift = [], 0.0, 0.0
        epoch: Any = object()  # of the last step; before the first one that of none
        for place, record in enumerate(self.step_records):
            start = (record.get("start") or 0.0) + shift
            # Updates of single workers overlap: within an epoch a longer one, which ends later, may have begun in what
            # seems to be a gap. Between epochs there is a barrier.
            alone = "staleness" not in record or record.get("epoch") != epoch
            epoch = record.get("epoch")
            # Whoever goes on with a run has a clock of its own.
            if place in self.resumed_at or (alone and start > trained):
                start, shift = trained, shift + trained - start
            trained = max(trained, end := start + (record.get("seconds") or 0.0))
            ends.append(end)
        return ends

    @functools.cached_property
    def steps(self) -> Any:
        """A row per step: times, samples, balance (mean over max of the workers' times), loss, what was decided."""
        return make_frame([_step_row(record) for record in self.step_records], _STEP_COLUMNS, self.library)

    @functools.cached_property
    def workers(self) -> Any:
        """A row per step and worker: batch, start, compute, wait and exchange seconds."""
        members = {member["id"]: member for member in self.header.get("workers", [])}
        names = self.worker_names
        rows = []
        for record in self.step_records:
            for row in _worker_rows(record):
                member = members.get(row["worker"], {})
                rows.append({**row, "name": names.get(row["worker"]), "kind": member.get("kind")})
        return make_frame(rows, _LONG_COLUMNS, self.library)

    @functools.cached_property
    def events(self) -> Any:
        """A row per event: death, join, stall, speed, …"""
        return make_frame(self.event_records, _EVENT_COLUMNS, self.library)

    @functools.cached_property
    def evaluations(self) -> Any:
        """A row per evaluation on the test set: loss and accuracy."""
        return make_frame(self.evaluation_records, _EVALUATION_COLUMNS, self.library)


def read_run(path: str | os.PathLike[str], library: Library | None = None) -> Run:
    """The run log at `path`.

    `library` is "pandas" or "polars"; without it the frames are of the one that is installed (pandas if both are).
    Raises `OSError` if the file cannot be read, `RunLogError` if it is no run log, and `ImportError` once a frame is
    asked for and neither library is there.
    """
    name = os.fspath(path)
    with open(name, encoding="utf-8", errors="replace") as file:
        records = _records(file, name)
        header = next(records, None)
        if header is None or header.get("type") != "run":
            raise RunLogError(f"{name}:1: the first line is no header; permitted: an object with type \"run\"")
        if header.get("schema") != SCHEMA:
            raise RunLogError(f"{name}:1: schema is {header.get('schema')}; permitted: {SCHEMA}")
        lines: dict[str, list[Record]] = {"step": [], "event": [], "evaluation": []}
        resumed_at = set()
        for record in records:
            kind = record.pop("type", None)
            if kind == "event" and record.get("event") == Event.RESUME:
                resumed_at.add(len(lines["step"]))
            if kind in lines:
                lines[kind].append(record)
    header.pop("type")
    return Run(name, header, lines["step"], lines["event"], lines["evaluation"], library, frozenset(resumed_at))


def _records(lines: Iterable[str], name: str) -> Iterator[Record]:
    """What the whole lines hold."""
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return  # cut short
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise RunLogError(f"{name}:{number}: the line is not JSON ({error.msg})") from None
        if not isinstance(record, dict):
            raise RunLogError(f"{name}:{number}: the line is not a JSON object")
        yield record


def _step_row(record: Record) -> Record:
    row = {key: value for key, value in record.items() if key not in _WORKER_COLUMNS}
    samples = sum(record.get("batch_sizes", []))
    seconds = record.get("seconds")
    row["samples"] = samples
    row["samples_per_second"] = samples / seconds if seconds else None
    row["balance"] = balance_of(record)
    return row


def balance_of(record: Record) -> float | None:
    """Mean over longest compute time of the workers that computed in a step: 1 is perfect.

    None if it is not known, as for the update of a single worker.
    """
    if "staleness" in record:
        return None
    seconds = [math.nan if time is None else time for time in record.get("compute_seconds", [])]
    value = balance(record.get("batch_sizes", []), seconds)
    return None if math.isnan(value) else value


def _worker_rows(record: Record) -> Iterator[Record]:
    columns = {name: record[key] for key, name in _WORKER_COLUMNS.items() if key in record}
    for values in zip(*columns.values()):
        yield {"step": record.get("step"), **dict(zip(columns, values))}
