"""Processor time of a training step, by phase and by thread: what the workers of breakdown.py measure with.

Processor time is what a throttled worker pays with, and other work on the machine changes it little; the time on the
wall of a busy machine says nothing.
"""

import collections
import contextlib
import functools
import os
import pathlib
import re
import time


class Phases:
    """Milliseconds by phase, of the thread that trains and of the whole process while that thread was in the phase. A
    phase within another is its own: what is left to the outer one is what it does itself."""

    def __init__(self):
        self.own = collections.Counter()
        self.whole = collections.Counter()
        self._open = ["between"]
        self._marks = time.thread_time_ns(), time.process_time_ns()

    def _account(self):
        now = time.thread_time_ns(), time.process_time_ns()
        self.own[self._open[-1]] += now[0] - self._marks[0]
        self.whole[self._open[-1]] += now[1] - self._marks[1]
        self._marks = now

    @contextlib.contextmanager
    def phase(self, name):
        self._account()
        self._open.append(name)
        try:
            yield
        finally:
            self._account()
            self._open.pop()

    def wrap(self, owner, attribute, name):
        """From now on calls of the function are that phase."""
        function = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*arguments, **keywords):
            with self.phase(name):
                return function(*arguments, **keywords)

        setattr(owner, attribute, timed)

    def over(self, steps, name):
        """An iterator whose turns are that phase."""
        while True:
            with self.phase(name):
                try:
                    value = next(steps)
                except StopIteration:
                    return
            yield value

    def take(self):
        """What was measured since the last call, in nanoseconds."""
        self._account()
        taken = dict(self.own), dict(self.whole)
        self.own.clear()
        self.whole.clear()
        return taken


def threads(process="self"):
    """Nanoseconds that every thread of a process has had of a processor, with what they are called."""
    found = {}
    for folder in pathlib.Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            name = (folder / "comm").read_text().strip()
            own = int((folder / "schedstat").read_text().split()[0])
            main = folder.name == (str(os.getpid()) if process == "self" else str(process))
            found[folder.name] = ("main" if main else re.sub(r"[-_./ ]*[0-9]+.*$", "", name), own)
    return found


def threads_between(before, after):
    """Nanoseconds by thread's name."""
    used = collections.Counter()
    for number, (name, own) in after.items():
        used[name] += own - before.get(number, (name, 0))[1]
    return {name: time for name, time in used.items() if time > 0}


class Turns:
    """Several loops in turns, so that whatever disturbs the machine disturbs all of them; medians are over turns."""

    def __init__(self):
        self.results = collections.defaultdict(list)

    def run(self, name, phases, step, steps):
        """A turn of so many steps."""
        before, begun = threads(), time.perf_counter()
        phases.take()
        for _ in range(steps):
            step()
        seconds = time.perf_counter() - begun
        own, whole = phases.take()
        used = threads_between(before, threads())
        to_ms = 1e-6 / steps
        self.results[name].append({
            "step_ms": 1e3 * seconds / steps,
            "cpu_ms": to_ms * (sum(used.values()) - used.get("main", 0) + sum(own.values())),
            "own": {phase: to_ms * value for phase, value in own.items()},
            "whole": {phase: to_ms * value for phase, value in whole.items()},
            "threads": {thread: to_ms * value for thread, value in used.items()},
        })  # fmt: skip
