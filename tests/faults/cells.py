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

# Which function of test_faults.py tries the cells.
TESTS = {
    "native": "test_a_fault_in_the_native_engine",
    "own": "test_a_fault_in_the_native_engine",
    "launch": "test_a_fault_under_the_native_launcher",
    "start": "test_a_fault_before_the_job",
    "PyTorch": "test_a_fault_in_pytorch",
    "PyTorch without recovery": "test_a_fault_in_pytorch",
    "TensorFlow": "test_a_fault_in_tensorflow",
    "replica": "test_a_fault_in_the_step_protocol",
}

# The time-out of jobs whose fault is noticed at once, in seconds, and of the others.
PATIENCE = 240.0
TIMEOUTS = {"native": 4.0, "own": 4.0, "launch": 15.0, "start": 8.0, "PyTorch": 6.0, "TensorFlow": 12.0}
# How long survivors may take from the fault to their end, however busy the machine is: less than half of the long
# time-out, or the short one and this.
MARGIN = 120.0

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
    def is_meeting(self):
        """Workers wait for each other, and none is told who ended, but natively by the launcher."""
        return self.phase in ("start", "rendezvous") and self.front != "launch"

    @property
    def seconds(self):
        """In words: how long it takes, beyond the step that is computed again."""
        if self.front == "launch" and self.fault == "stop":
            return "`--start-timeout`"  # until then nobody trains with it whose time-out could count
        return "the time-out" if self.is_meeting or self.fault == "stop" else "at once"

    @property
    def is_noticed_at_once(self):
        return self.seconds == "at once"

    @property
    def timeout(self):
        return PATIENCE if self.is_noticed_at_once else TIMEOUTS[self.front.split(" ")[0]]

    @property
    def most_seconds(self):
        """From the fault to the survivors' end."""
        return PATIENCE / 2 if self.is_noticed_at_once else self.timeout + MARGIN


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
    *(cell for sync in ASYNC for cell in _cells(
        "native", sync, (*DEATHS, "stop"), (*COMPUTING, "checkpoint", "evaluation", "leave"), "on")),
    *(cell for sync in ASYNC for cell in _cells("native", sync, DEATHS, ("end",), "on")),
    *_cells("native", "local", (*DEATHS, "stop"), (*COMPUTING, "checkpoint", "evaluation", "leave"), "on"),
    *_cells("native", "local", (*DEATHS, "stop"), ("end",), "on"),
    # The same workers under `isochron launch`, which tells MPI of those who leave unannounced, and ends one that is
    # stopped when the others have done their part.
    *_cells("own", "bsp", (*DEATHS, "exit", "error"), (*COMPUTING, "checkpoint", "evaluation", "leave", "end"), "on"),
    *_cells("own", "bsp", ("stop",), (*COMPUTING, "checkpoint", "evaluation", "leave", "end"), "on"),
    *(cell for sync in ASYNC for cell in _cells(
        "own", sync, (*DEATHS, "exit", "error", "stop"),
        (*COMPUTING, "checkpoint", "evaluation", "leave", "end"), "on")),
    # Under `isochron launch`: before the first step, and while a worker joins in the place of a lost one.
    *_cells("launch", "bsp", (*DEATHS, "stop"), ("start", "rendezvous"), "again"),
    *_cells("launch", "bsp", (*DEATHS, "stop"), ("join",), "joined"),
    # PyTorch, in step. Who is left re-forms; only the user's own collective calls tell of the loss by an error.
    *_cells("start", "bsp", LOSSES, ("start",), "named"),
    *(cell for sync in ("bsp", "local", "asp", "ssp") for cell in _cells(
        "PyTorch", sync, LOSSES, ("rendezvous",), "named")),
    *_cells("PyTorch", "bsp", LOSSES, ("evaluation",), "named"),
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
    *_cells("PyTorch", "local", LOSSES, (*COMPUTING, "checkpoint", "join", "leave", "end"), "on"),
    *_cells("PyTorch", "local", LOSSES, ("evaluation",), "named"),
    # PyTorch, out of step: who is left goes on within an epoch; between two a lost worker ends the job.
    *(cell for sync in ("asp", "ssp") for cell in _cells(
        "PyTorch", sync, LOSSES, (*COMPUTING, "join"), "on")),
    *(cell for sync in ("asp", "ssp") for cell in _cells(
        "PyTorch", sync, LOSSES, ("checkpoint", "evaluation"), "named")),
    *(cell for sync in ("asp", "ssp") for cell in _cells("PyTorch", sync, LOSSES, ("leave",), "left")),
    *(cell for sync in ("asp", "ssp") for cell in _cells("PyTorch", sync, LOSSES, ("end",), "done")),
    *(cell for sync in ("asp", "ssp") for cell in _cells("PyTorch", sync, ("nan",), ("step", "reduction"), "all")),
    *_cells("PyTorch", "local", ("nan",), ("step",), "all"),
    # TensorFlow: a lost worker ends the job.
    *(cell for sync in ("bsp", "asp", "ssp") for cell in _cells(
        "TensorFlow", sync, LOSSES, ("start", "rendezvous", *COMPUTING, "checkpoint", "evaluation"), "named")),
    *_cells("TensorFlow", "bsp", LOSSES, ("leave",), "named"),
    *(cell for sync in ("asp", "ssp") for cell in _cells("TensorFlow", sync, LOSSES, ("leave",), "left")),
    *(cell for sync in ("bsp", "asp", "ssp") for cell in _cells("TensorFlow", sync, LOSSES, ("end",), "done")),
    *(cell for sync in ("bsp", "asp", "ssp") for cell in _cells(
        "TensorFlow", sync, ("nan",), ("step", "reduction"), "all")),
    *_cells("TensorFlow", "bsp", ("disk",), ("checkpoint",), "told"),
    # The protocol of core/replica, which jobs in Python run on, by itself in one process.
    *_cells("replica", "bsp", DEATHS, (*COMPUTING, "checkpoint", "evaluation", "join", "leave", "end"), "on"),
    *_cells("replica", "bsp", ("memory",), ("step", "end"), "smaller"),
    *_cells("replica", "bsp", ("behind",), ("step", "reduction", "end"), "on"),
]  # fmt: skip


def table():
    """For docs/guarantees.md: a row for a front end and fault, a column for a phase."""
    rows = ["| front end | fault | " + " | ".join(PHASES) + " | after | tried by |"]
    rows.append("|---" * (len(PHASES) + 4) + "|")
    by_row = {}
    for cell in CELLS:
        by_row.setdefault((cell.front, cell.sync, cell.fault), {})[cell.phase] = cell
    for (front, sync, fault), found in by_row.items():
        marks = [found[phase].outcome if phase in found else "" for phase in PHASES]
        after = next((cell.seconds for cell in found.values() if not cell.is_meeting), "the time-out")
        test = f"`{TESTS[front]}[{front}-{sync}-*-{fault}]`"
        rows.append(f"| {FRONTS[front]}, {sync} | {FAULTS[fault]} | " + " | ".join(marks) + f" | {after} | {test} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
