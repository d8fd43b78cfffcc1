"""One worker of the tests: runs cases one after the other in a process that launch.py made."""

import resource
import signal
import traceback

import fitting
import habits
import launching
import lengths
import mishaps
import out_of_step
import parity
import pipelines
import running
import starting

LIMIT = 600  # seconds for a case on a machine that is busy; beyond them it hangs
CASES = {**parity.CASES, **running.CASES, **starting.CASES, **out_of_step.CASES, **fitting.CASES, **launching.CASES,
         **pipelines.CASES, **lengths.CASES, **habits.CASES, **mishaps.CASES}  # fmt: skip


def cpu_seconds():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def run(rank, folder, cases):
    """What became of each goes to a file of its name and the rank."""
    for case in cases:
        signal.alarm(LIMIT)
        before = cpu_seconds()
        try:
            words = CASES[case](folder)
            said = f"passed, {cpu_seconds() - before:.1f} s of CPU" + (f", {words}" if words else "")
        except BaseException:
            said = traceback.format_exc()
        (folder / f"{case}.{rank}").write_text(said)
