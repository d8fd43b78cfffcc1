#!/usr/bin/env python3
"""The fault matrix: what becomes of a job when a fault strikes one worker in a phase, for every front end. Data only.

test_faults.py tries every cell; `cells.py` prints the table of docs/guarantees.md, which is checked against it.
"""

import dataclasses
import itertools

PHASES = ("start", "rendezvous", "step", "reduction", "optimizer", "checkpoint", "evaluation", "join", "leave", "end")

# What the workers that are left do.
FRONTS = {
    "native": "native",
    "own": "native, own program, launcher",
    "launch": "native, launcher",
    "start": "PyTorch, launcher",
    "PyTorch": "PyTorch",
    "PyTorch without recovery": "PyTorch without recovery",
    "TensorFlow": "TensorFlow",
    "replica": "*protocol in one process*",
}
OUTCOMES = {
    "on": "the others go on and use every sample once",
    "again": "the job is started again, and uses every sample once",
    "joined": "the others go on, a worker joins in the lost one's place, and every sample is used once",
    "done": "the others end as if nothing had been",
    "left": "the others end as they were asked to, or with an error that names the worker",
    "named": "the others end with an error that names the worker",
    "told": "save() raises an error with the reason on all",
    "all": "all end with an error that names the worker",
    "smaller": "the same step with smaller batches there; nobody is lost",
    "skipped": "the step is left out everywhere",
}

# How long that takes, beyond the step that is computed again; where workers meet it is always the time-out.
TIMES = {"kill": "at once", "kill-first": "at once", "exit": "at once", "error": "at once", "stop": "the time-out"}

# The time-out of jobs whose fault is noticed at once. They end before, however busy the machine is.
PATIENCE = 240.0

FAULTS = {
    "kill": "a worker is killed",
    "kill-first": "the first worker is killed",
    "kill-two": "two workers are killed",
    "exit": "a worker ends with status 0",
    "error": "a worker's script raises an error",
    "stop": "a worker is stopped",
    "nan": "a loss or gradient is not finite",
    "nan-skip": "the same, where steps may be left out",
    "memory": "memory runs out",
    "behind": "a worker misses the reports of a step",
    "disk": "the disk is full",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    front: str  # native, PyTorch, TensorFlow; replica: the protocol of core by itself, in one process
    sync: str
    phase: str
    fault: str
    outcome: str

    @property
    def name(self):
        return f"{self.front}-{self.sync}-{self.phase}-{self.fault}"

    @property
    def seconds(self):
        """In words."""
        return TIMES.get(self.fault, "at once")

    @property
    def is_noticed_at_once(self):
        meeting = self.phase == "rendezvous" or (self.front, self.phase) == ("TensorFlow", "start")
        return self.seconds == "at once" and not meeting


def _cells(front, sync, faults, phases, outcome):
    return [Cell(front, sync, phase, fault, outcome) for fault, phase in itertools.product(faults, phases)]


LOSSES = ("kill", "kill-first", "exit", "error", "stop")
DEATHS = ("kill", "kill-first", "kill-two")
COMPUTING = ("step", "reduction", "optimizer")
ASYNC = ("asp", "ssp", "ssp 0")
CELLS = [
    # The native engine.
    *_cells("native", "bsp", (*DEATHS, "stop"), (*COMPUTING, "checkpoint", "evaluation", "leave", "end"), "on"),
    *_cells("native", "bsp", ("memory",), ("step",), "smaller"),
    *_cells("native", "bsp", ("nan",), ("step", "reduction"), "all"),
    *_cells("native", "bsp", ("nan-skip",), ("step", "reduction"), "skipped"),
    *(cell for sync in ASYNC for cell in _cells("native", sync, DEATHS, (*COMPUTING, "evaluation"), "on")),
    *(cell for sync in ASYNC for cell in _cells("native", sync, ("stop",), ("step",), "on")),
    *_cells("native", "local", ("kill", "kill-first", "stop"), (*COMPUTING, "checkpoint"), "on"),
    # The same workers under `isochron launch`, which tells MPI of those who leave unannounced.
    *_cells("own", "bsp", ("exit", "error"), (*COMPUTING, "checkpoint", "evaluation", "leave", "end"), "on"),
    # Under `isochron launch`: before the first step, and while a worker joins in the place of a lost one.
    *_cells("launch", "bsp", (*DEATHS, "stop"), ("start", "rendezvous"), "again"),
    *_cells("launch", "bsp", (*DEATHS, "stop"), ("join",), "joined"),
    # PyTorch, in step. Who is left re-forms; only the user's own collective calls tell of the loss by an error.
    *_cells("start", "bsp", ("kill", "exit", "error"), ("start",), "named"),
    *_cells("PyTorch", "bsp", LOSSES, ("rendezvous", "evaluation"), "named"),
    *_cells("PyTorch", "bsp", LOSSES, (*COMPUTING, "checkpoint", "join", "leave", "end"), "on"),
    *_cells("PyTorch", "bsp", ("nan",), ("step", "reduction"), "all"),
    *_cells("PyTorch", "bsp", ("nan-skip",), ("step", "reduction"), "skipped"),
    *_cells("PyTorch", "bsp", ("memory",), ("step",), "smaller"),
    *_cells("PyTorch", "bsp", ("disk",), ("checkpoint",), "told"),
    # The same with elastic=False, as with NCCL.
    *_cells("PyTorch without recovery", "bsp", LOSSES, ("rendezvous", *COMPUTING, "checkpoint", "evaluation"), "named"),
    *_cells("PyTorch without recovery", "bsp", LOSSES, ("leave",), "named"),
    *_cells("PyTorch without recovery", "bsp", LOSSES, ("end",), "done"),
    # PyTorch, within a round of two local steps, or while its changes are averaged.
    *_cells("PyTorch", "local", LOSSES, COMPUTING, "on"),
    # PyTorch, out of step: who is left goes on within an epoch; between two a lost worker ends the job.
    *(cell for sync in ("asp", "ssp") for cell in _cells("PyTorch", sync, LOSSES, COMPUTING, "on")),
    *(cell for sync in ("asp", "ssp") for cell in _cells(
        "PyTorch", sync, LOSSES, ("rendezvous", "checkpoint", "evaluation"), "named")),
    *(cell for sync in ("asp", "ssp") for cell in _cells("PyTorch", sync, LOSSES, ("leave",), "left")),
    *(cell for sync in ("asp", "ssp") for cell in _cells("PyTorch", sync, LOSSES, ("end",), "done")),
    # TensorFlow: a lost worker ends the job, which begins the same way in step and out of it.
    *_cells("TensorFlow", "bsp", LOSSES, ("start", "rendezvous"), "named"),
    *(cell for sync in ("bsp", "asp", "ssp") for cell in _cells(
        "TensorFlow", sync, LOSSES, (*COMPUTING, "checkpoint", "evaluation"), "named")),
    *_cells("TensorFlow", "bsp", LOSSES, ("leave",), "named"),
    *(cell for sync in ("asp", "ssp") for cell in _cells("TensorFlow", sync, LOSSES, ("leave",), "left")),
    *(cell for sync in ("bsp", "asp", "ssp") for cell in _cells("TensorFlow", sync, LOSSES, ("end",), "done")),
    # The protocol of core/replica, which jobs in Python run on, by itself in one process.
    *_cells("replica", "bsp", DEATHS, (*COMPUTING, "checkpoint", "evaluation", "join", "leave", "end"), "on"),
    *_cells("replica", "bsp", ("memory",), ("step", "end"), "smaller"),
    *_cells("replica", "bsp", ("behind",), ("step", "reduction", "end"), "on"),
]  # fmt: skip


def table():
    """For docs/guarantees.md: a row for a front end and fault, a column for a phase."""
    rows = ["| front end | fault | " + " | ".join(PHASES) + " | after |", "|---" * (len(PHASES) + 3) + "|"]
    by_row = {}
    for cell in CELLS:
        by_row.setdefault((cell.front, cell.sync, cell.fault), {})[cell.phase] = cell
    for (front, sync, fault), found in by_row.items():
        marks = [found[phase].outcome if phase in found else "" for phase in PHASES]
        after = next(iter(found.values())).seconds
        rows.append(f"| {FRONTS[front]}, {sync} | {FAULTS[fault]} | " + " | ".join(marks) + f" | {after} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
