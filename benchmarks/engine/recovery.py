#!/usr/bin/env python3
"""How long a job stands still when a worker is killed: from SIGKILL to the next finished step, less one step.

Every round starts four workers by `isochron launch`, lets them train, kills one of them at a random moment and watches
the run log, which gets a line the moment a step is finished. Prints the median over all rounds; --json FILE writes the
figures.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = [
    "train", "--dataset", "synthetic", "--model", "cnn:width=8", "--train-samples", "4096", "--test-samples", "64",
    "--global-batch", "128", "--epochs", "1000", "--steps", "60", "--eval-every", "0", "--progress", "off", "--quiet",
]  # fmt: skip
KILL_AFTER = 20  # lines of the log


def watch_lines(path, process):
    """Yields (moment, line) as lines appear."""
    position, rest = 0, ""
    while process.poll() is None:
        if path.exists():
            with path.open() as file:
                file.seek(position)
                text = file.read()
                position = file.tell()
            now = time.perf_counter()
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                yield now, json.loads(line)
        time.sleep(0.0005)


def one_round(workers, victim):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "run.jsonl")
        words = [ROOT / "build/dev/bin/isochron", "launch", "--quiet", "-n", str(workers), "--", *TRAIN, "--log", log]
        process = subprocess.Popen(words, env=os.environ | {"TMPDIR": folder}, stderr=subprocess.DEVNULL)
        seen, killed, times = 0, None, []
        for moment, line in watch_lines(log, process):
            seen += 1
            if line["type"] != "step":
                continue
            if killed is None:
                times.append(moment)
                if seen == KILL_AFTER:
                    step = statistics.median(b - a for a, b in zip(times[3:], times[4:]))
                    pids = next(pathlib.Path(folder).glob(f"isochron-*/{victim}.pids")).read_text()
                    time.sleep(random.random() * step)
                    killed = time.perf_counter()
                    os.kill(int(pids.split()[0]), signal.SIGKILL)
            elif len(line["workers"]) < workers:
                process.send_signal(signal.SIGTERM)
                process.wait()
                return moment - killed, step
        raise SystemExit(f"the job ended with {process.returncode} and did not go on")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    random.seed(options.seed)
    rounds = [one_round(options.workers, number % options.workers) for number in range(options.rounds)]
    lost = sorted(gap - step for gap, step in rounds)
    figures = {
        "workers": options.workers,
        "rounds": options.rounds,
        "step_seconds": statistics.median(step for _, step in rounds),
        "lost_seconds": {"p50": statistics.median(lost), "p90": lost[int(0.9 * len(lost))], "max": lost[-1]},
    }
    print("step {step:.0f} ms; from a kill to the next finished step, less one step: median {p50:.0f} ms, p90 "
          "{p90:.0f} ms, most {max:.0f} ms".format(step=1e3 * figures["step_seconds"],
                                         **{k: 1e3 * v for k, v in figures["lost_seconds"].items()}))  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
