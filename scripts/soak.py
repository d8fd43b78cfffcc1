#!/usr/bin/env python3
"""Trains for --minutes while workers are killed, stopped and replaced, a fault every --every seconds, and proves what is
left: the ledger of the run log, the memory of those who were there all the time, no file and no process left behind.
`make soak minutes=60` runs it."""

import argparse
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
TRAIN = (
    "train --dataset synthetic --model mlp --train-samples 4096 --test-samples 100 --global-batch 128 "
    "--learning-rate 0.02 --epochs 1000000 --eval-every 0 --log run.jsonl --progress off --checkpoints saved"
).split()


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two faults")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=8.0, help="of the job's exchanges, seconds")
    parser.add_argument("--growth", type=float, default=1.1, help="what a survivor's memory may grow to, as a factor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isochron", type=Path, default=ROOT / "build/dev/bin/isochron")
    return parser.parse_args()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def resident_mib(pid):
    """What it has for itself: pages of files that it shares come and go with the page cache."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


class Soak:
    def __init__(self, chosen, folder):
        self.chosen = chosen
        self.folder = folder
        self.random = random.Random(chosen.seed)
        self.counts = {"kill": 0, "stop": 0, "kill while starting": 0}
        self.memory = {}  # of a process: seconds since the start, MiB
        self.seen = {}  # processes: when they were seen first
        self.problems = []
        self.shared = set(os.listdir("/dev/shm"))

    def workers(self):
        pids = []
        for file in self.folder.glob("isochron-*/*.pids"):
            try:
                pid = int(file.read_text().split()[0])
            except (OSError, ValueError, IndexError):
                continue  # it ends, or starts, this moment
            if lives(pid):
                pids.append(pid)
                self.seen.setdefault(pid, time.monotonic())
        return pids

    def hit(self, pid, number, kind):
        try:
            os.kill(pid, number)
            self.counts[kind] += 1
        except ProcessLookupError:
            pass

    def fault(self):
        pids = self.workers()
        young = [pid for pid in pids if time.monotonic() - self.seen[pid] < 2.0]
        if young:  # about to join
            self.hit(self.random.choice(young), signal.SIGKILL, "kill while starting")
        elif len(pids) > 1:
            kill = self.random.random() < 0.7
            self.hit(self.random.choice(pids), signal.SIGKILL if kill else signal.SIGSTOP, "kill" if kill else "stop")

    def note_memory(self, start):
        for pid in self.workers():
            if (mib := resident_mib(pid)) is not None:
                self.memory.setdefault(pid, []).append((time.monotonic() - start, mib))

    def lines(self):
        try:
            return (self.folder / "run.jsonl").stat().st_size
        except OSError:
            return 0

    def run(self):
        chosen = self.chosen
        command = [
            chosen.isochron, "launch", "-n", str(chosen.workers), "--replace", "1000000", "--restarts", "1000000",
            "--start-timeout", "60", "--stop-timeout", "120", "--", *TRAIN, "--timeout", str(chosen.timeout),
            "--checkpoint-every", "500",
        ]  # fmt: skip
        environment = dict(os.environ, TMPDIR=str(self.folder), OMP_NUM_THREADS="1")
        with open(self.folder / "errors", "w") as errors:
            job = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=errors, stderr=errors)
        start = moved = time.monotonic()
        size = 0
        next_fault = start + 2 * chosen.every
        while time.monotonic() < start + 60 * chosen.minutes and job.poll() is None:
            time.sleep(0.25)
            self.note_memory(start)
            if self.lines() != size:
                size, moved = self.lines(), time.monotonic()
            if time.monotonic() > moved + 180:
                self.problems.append(f"no step for 180 s, after {time.monotonic() - start:.0f} s")
                break
            if time.monotonic() >= next_fault:
                next_fault += chosen.every
                self.fault()
        self.end(job)

    def end(self, job):
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            try:
                job.wait(180)
            except subprocess.TimeoutExpired:
                self.problems.append("the launcher did not end within 180 s after SIGTERM")
                job.kill()
                job.wait()
        if job.returncode != 128 + signal.SIGTERM:
            self.problems.append(f"the launcher ended with {job.returncode}, not with 143")
        left = [pid for pid in self.seen if lives(pid)]
        if left:
            self.problems.append(f"processes are left: {left}")

    def judge(self):
        proof = subprocess.run([self.chosen.isochron, "ledger", self.folder / "run.jsonl"], capture_output=True, text=True)
        if proof.returncode != 0:
            self.problems.append("the ledger is not proven: " + proof.stdout[-300:] + proof.stderr[-300:])
        left = sorted(set(os.listdir(self.folder)) - {"run.jsonl", "saved", "errors"})
        left += sorted(name for name in set(os.listdir("/dev/shm")) - self.shared if name.startswith("isochron-"))
        if left:
            self.problems.append(f"files are left: {left}")
        growth = 1.0
        for pid, values in self.memory.items():
            values = values[8:]  # it has begun by then
            if values and values[-1][0] - values[0][0] >= 60:
                quarter = max(len(values) // 4, 1)
                begin = sorted(mib for _, mib in values[:quarter])[quarter // 2]
                end = sorted(mib for _, mib in values[-quarter:])[quarter // 2]
                growth = max(growth, end / begin)
                if end > begin * self.chosen.growth + 2:
                    self.problems.append(f"memory of process {pid} grew from {begin:.0f} to {end:.0f} MiB")
        events = {}
        steps = 0
        for line in (self.folder / "run.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record.get("type") == "event":
                events[record["event"]] = events.get(record["event"], 0) + 1
            elif record.get("type") == "step":
                steps += 1
        return {"steps": steps, "faults": self.counts, "events": events, "growth": round(growth, 3)}


def main():
    chosen = options()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    soak = Soak(chosen, folder)
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
