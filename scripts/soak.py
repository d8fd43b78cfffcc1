#!/usr/bin/env python3
"""Trains for --minutes while workers are killed and stopped, a fault every --every seconds, and proves what is left:
the ledger of the run log, the memory of those who lived long, no file and no process left behind.

With --frontend native lost workers are replaced. With torch the survivors re-form; when one is left, the job is asked
to end and started again from what it saved. `make soak minutes=60` runs both, together in 1.2 cores."""

import argparse
import contextlib
import getpass
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
from isochron.processes import state_of  # noqa: E402

TRAIN = (
    "train --dataset synthetic --model mlp --train-samples 4096 --test-samples 100 --global-batch 128 "
    "--learning-rate 0.02 --epochs 1000000 --eval-every 0 --log run.jsonl --progress off --checkpoints saved"
).split()
PERIOD = 20_000  # of the quota, in microseconds
HANGS = 400.0  # seconds without a step, starts on a busy machine included
BEGUN = 5.0  # seconds of training until a worker's memory counts
LONG = 45.0  # seconds of a worker whose memory is judged


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frontend", choices=("native", "torch"), default="native")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two faults")
    parser.add_argument("--strike-starts", type=float, default=0.15, help="how often, without a step since the last")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--cores", type=float, default=0.3, help="for all of them together; 0: no limit")
    parser.add_argument("--timeout", type=float, default=8.0, help="of the job's exchanges, seconds")
    parser.add_argument("--growth", type=float, default=1.1, help="what a survivor's memory may grow to, as a factor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isochron", type=Path, default=ROOT / "build/dev/bin/isochron")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/bin/python")
    return parser.parse_args()


def lives(pid):
    return state_of(pid) not in "ZX"


def begin_of(pid):
    """In clock ticks after the boot: what tells it from a later process of the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def in_use(folder):
    """Files there that some process maps or holds open. Those of other users cannot be looked at."""
    used, prefix = set(), f"{folder}/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            used.update(os.readlink(descriptor) for descriptor in (process / "fd").iterdir())
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text().splitlines():
                used.add(line[line.find("/") :] if prefix in line else "")
    return {name for name in used if name.startswith(prefix)}


def left_in(folder, before):
    """What is new there, and neither of a launcher that lives, isochron-PROCESS-…, nor in anybody's use."""
    used, left = in_use(folder), []
    for name in sorted(set(os.listdir(folder)) - before):
        words = name.split("-")
        owned = words[0] == "isochron" and len(words) > 1 and lives(words[1])
        if not owned and not any(one == f"{folder}/{name}" or one.startswith(f"{folder}/{name}/") for one in used):
            left.append(name)
    return left


def resident_mib(pid):
    """What it has for itself: pages of files that it shares come and go with the page cache."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


@contextlib.contextmanager
def limited(cores):
    """A function that puts the process that calls it into a control group of so many cores; where this user may not
    make one, nothing is limited, and this says so."""
    for folder, files in (
        ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": round(cores * PERIOD)}),
        ("/sys/fs/cgroup", {"cpu.max": f"{round(cores * PERIOD)} {PERIOD}"}),
    ):
        group = Path(folder) / f"isochron-soak-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in files.items():
                (group / name).write_text(str(value))
            yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
            return
        except OSError:
            continue
        finally:
            for _ in range(50):  # until the kernel has buried who was in it
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.1)
    print("soak: cores are not limited: no control group can be made", file=sys.stderr)
    yield lambda: None


class Soak:
    """What both front ends share; they say how a job starts, who its workers are, and when it is over."""

    log = "run.jsonl"
    keeps: set[str] = {"run.jsonl", "errors"}

    def __init__(self, chosen, folder, limit):
        self.chosen = chosen
        self.folder = folder
        self.limit = limit
        self.random = random.Random(chosen.seed)
        self.counts = {"kill": 0, "stop": 0, "kill while starting": 0, "spared": 0}  # spared: while it started
        self.memory = {}  # of a worker: seconds since the start, MiB
        self.launchers = {}  # the same of launchers
        self.seen = {}  # processes: when they were seen first
        self.begins = {}  # and when the kernel says that they began
        self.starts = 0
        self.lines_at_fault = 0
        self.problems = []
        self.shared = set(os.listdir("/dev/shm"))
        self.start = time.monotonic()

    def spawn(self, command):
        self.starts += 1
        self.lines_at_start = self.lines()
        environment = dict(os.environ, TMPDIR=str(self.folder), OMP_NUM_THREADS="1")
        with open(self.folder / "errors", "a") as errors:
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=errors, stderr=errors,
                                       preexec_fn=self.limit)  # fmt: skip
        self.job = process.pid
        return process

    def workers(self):
        pids = [pid for pid in self.processes() if lives(pid)]
        for pid in pids:
            self.seen.setdefault(pid, time.monotonic())
            self.begins.setdefault(pid, begin_of(pid))
        return sorted(pids, key=lambda pid: self.seen[pid])

    def hit(self, pid, number, kind):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.counts[kind] += 1

    def fault(self):
        # A job that is struck while it starts has to be started again. Where that takes longer than the time between
        # two faults, a job that is always struck never trains, so that few of the faults may do it.
        moved = self.lines() > self.lines_at_fault
        self.lines_at_fault = self.lines()
        if not moved and self.random.random() > self.chosen.strike_starts:
            self.counts["spared"] += 1
            return
        pids = self.workers()
        young = [pid for pid in pids if time.monotonic() - self.seen[pid] < 2.0]
        half = time.monotonic() - self.start < 30 * self.chosen.minutes
        if young:  # about to join
            self.hit(self.random.choice(young), signal.SIGKILL, "kill while starting")
        elif len(running := [pid for pid in pids if state_of(pid) != "T"]) > 1:  # a job needs one who goes on
            # For half of the time one stays, so that one sees what its memory does.
            kill = self.random.random() < 0.7
            pid = self.random.choice(running[1:] if half else running)
            self.hit(pid, signal.SIGKILL if kill else signal.SIGSTOP, "kill" if kill else "stop")

    def note_memory(self):
        for pid in self.workers() if self.trains() else []:
            if self.takes_part(pid):
                self.note_memory_of(pid, self.memory)
        self.note_memory_of(self.job, self.launchers)

    def note_memory_of(self, pid, memory):
        if (mib := resident_mib(pid)) is not None:
            memory.setdefault(pid, []).append((time.monotonic() - self.start, mib))

    def takes_part(self, pid):
        """One that waits to join has not loaded what it will need."""
        return True

    def lines(self):
        try:
            return (self.folder / self.log).stat().st_size
        except OSError:
            return 0

    def trains(self):
        return self.lines() > self.lines_at_start

    def run(self):
        job = self.spawn(self.command())
        moved, size = self.start, 0
        next_fault = self.start + 2 * self.chosen.every
        last_fault = self.start + 60 * self.chosen.minutes - 3 * self.chosen.every  # then the job ends undisturbed
        while time.monotonic() < self.start + 60 * self.chosen.minutes:
            time.sleep(0.25)
            self.note_memory()
            if self.lines() != size:
                size, moved = self.lines(), time.monotonic()
            if time.monotonic() > moved + HANGS:
                self.problems.append(f"no step for {HANGS:.0f} s, after {time.monotonic() - self.start:.0f} s")
                self.show_stacks(job.pid)
                break
            if next_fault <= time.monotonic() < last_fault:
                next_fault += self.chosen.every
                self.fault()
            if self.is_over(job):
                if (job := self.again(job)) is None:
                    return
        self.end(job)

    def give_up(self):
        self.problems.append("it was asked to end before its time")
        self.chosen.minutes = 0.0

    def show_stacks(self, launcher):
        """Where everybody is, if there is a debugger: for whoever looks for the reason."""
        with open(self.folder / "stacks", "w") as stacks:
            for pid in [launcher, *self.workers()] if shutil.which("gdb") else []:
                command = ["gdb", "--batch", "-nx", "-p", str(pid), "-ex", "thread apply all bt"]
                subprocess.run(command, stdout=stacks, stderr=stacks, timeout=120, check=False)

    def end(self, job):
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            try:
                job.wait(HANGS)
            except subprocess.TimeoutExpired:
                self.problems.append(f"the launcher did not end within {HANGS:.0f} s after SIGTERM")
                self.show_stacks(job.pid)
                job.kill()
                job.wait()
        if job.returncode not in self.ends:
            self.problems.append(f"the launcher ended with {job.returncode}, not with {self.ends[0]}")
        left = [pid for pid in self.seen if lives(pid) and begin_of(pid) == self.begins[pid]]
        if left:
            self.problems.append(f"processes are left: {left}")

    def judge(self):
        command = [self.chosen.isochron, "ledger", self.folder / self.log]
        proof = subprocess.run(command, capture_output=True, text=True)
        if proof.returncode != 0:
            self.problems.append("the ledger is not proven: " + proof.stdout[-300:] + proof.stderr[-300:])
        left = sorted(set(os.listdir(self.folder)) - self.keeps - {"stacks"})
        left += left_in("/dev/shm", self.shared)
        if left:
            self.problems.append(f"files are left: {left}")
        events, steps = {}, 0
        with open(self.folder / self.log) as lines:
            for line in lines:
                record = json.loads(line)
                if record.get("type") == "event":
                    events[record["event"]] = events.get(record["event"], 0) + 1
                elif record.get("type") == "step":
                    steps += 1
        return {
            "frontend": self.chosen.frontend,
            "minutes": round((time.monotonic() - self.start) / 60, 1),
            "steps": steps,
            "starts": self.starts,
            "faults": self.counts,
            "events": events,
            "workers": self.judge_memory(self.memory),
            "launchers": self.judge_memory(self.launchers),
        }

    def judge_memory(self, memory):
        """How the memory of those who lived long grew, at most, and what the one did who lived longest, in quarters."""
        growth, longest = 1.0, (0.0, [])
        for pid, values in memory.items():
            values = [(when, mib) for when, mib in values if when - values[0][0] >= BEGUN]
            if not values or values[-1][0] - values[0][0] < LONG:
                continue
            quarter = max(len(values) // 4, 1)
            parts = [sorted(mib for _, mib in values[at : at + quarter]) for at in range(0, 4 * quarter, quarter)]
            medians = [round(part[len(part) // 2], 1) for part in parts if part]
            begin, end = medians[0], medians[-1]
            growth = max(growth, end / begin)
            longest = max(longest, (round(values[-1][0] - values[0][0], 1), medians))
            if end > begin * self.chosen.growth + 2:
                self.problems.append(f"memory of process {pid} grew from {begin:.0f} to {end:.0f} MiB")
        if not longest[1]:
            self.problems.append(f"nobody lived for {LONG:g} s, so that nothing is known of memory")
        return {
            "growth": round(growth, 3),
            "longest": {"seconds": longest[0], "MiB by quarters": longest[1]},
        }


class Native(Soak):
    keeps = {"run.jsonl", "errors", "saved"}
    ends = (128 + signal.SIGTERM,)

    def command(self):
        return [
            self.chosen.isochron, "launch", "-n", str(self.chosen.workers), "--replace", "1000000",
            "--restarts", "1000000", "--start-timeout", "60", "--stop-timeout", "120", "--", *TRAIN,
            "--timeout", str(self.chosen.timeout), "--checkpoint-every", "500",
        ]  # fmt: skip

    def processes(self):
        for file in self.folder.glob("isochron-*/*.pids"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it ends, or starts, this moment
                yield int(file.read_text().split()[0])

    def takes_part(self, pid):
        return any(self.folder.glob(f"isochron-*/{pid}.member"))

    def is_over(self, job):
        return job.poll() is not None

    def again(self, job):
        self.problems.append(f"the launcher ended with {job.returncode} after {time.monotonic() - self.start:.0f} s")


class Torch(Soak):
    keeps = {"run.jsonl", "errors", "job.pt", f"torchinductor_{getpass.getuser()}"}  # that is a cache of PyTorch's own
    ends = (0, 128 + signal.SIGTERM)  # the latter of one that was just starting

    def command(self):
        self.launcher = None
        return [
            self.chosen.python, "-m", "isochron.launch", "-n", str(self.chosen.workers),
            ROOT / "scripts/soak_worker.py", str(self.chosen.timeout),
        ]  # fmt: skip

    def spawn(self, command):
        self.launcher = super().spawn(command)
        return self.launcher

    def processes(self):
        pid = self.launcher.pid
        with contextlib.suppress(OSError):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def is_over(self, job):
        """All have ended, which is right only if one was lost before they had come together; or one is left."""
        return job.poll() is not None or (self.trains() and len(self.workers()) == 1)

    def again(self, job):
        if job.poll() is None:
            self.end(job)
        return None if self.problems else self.spawn(self.command())


def main():
    chosen = options()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with limited(chosen.cores) if chosen.cores else contextlib.nullcontext(lambda: None) as limit:
        soak = (Native if chosen.frontend == "native" else Torch)(chosen, folder, limit)
        signal.signal(signal.SIGTERM, lambda number, frame: soak.give_up())
        soak.run()
    print(json.dumps(soak.judge()))
    for problem in soak.problems:
        print("soak: " + problem, file=sys.stderr)
    if soak.problems:
        print(f"soak: what the job said is in {folder}/errors", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
