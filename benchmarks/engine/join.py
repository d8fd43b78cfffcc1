#!/usr/bin/env python3
"""How long the workers of a job wait when another one joins, and how soon it has its share.

Every round starts workers by `isochron launch`, asks for one more by `--attach`, and reads the run log: the time from
the start of the last step without the newcomer to the start of the first with it, less one step. It holds one
transfer of the state; a second model with a larger state shows what that costs. Prints the medians; --json FILE writes
the figures.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/dev/bin/isochron"
TRAIN = [
    "train", "--dataset", "synthetic", "--train-samples", "4096", "--test-samples", "64", "--global-batch", "128",
    "--epochs", "1000", "--steps", "400", "--eval-every", "0", "--progress", "off", "--quiet",
]  # fmt: skip
# With their optimizers' momentum: the state that a newcomer gets.
MODELS = {"small": "cnn:width=8", "large": "mlp:hidden=2048,layers=3"}
BEFORE = 20  # steps before the newcomer is asked for
AFTER = 12  # steps with it


def lines_of(log):
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_for(log, process, enough):
    """The run log's lines, once there are enough of them."""
    while process.poll() is None:
        lines = lines_of(log) if log.exists() else []
        if enough(lines):
            return lines
        time.sleep(0.02)
    raise SystemExit(f"the job ended with {process.returncode} before another worker had joined")


def steps_of(lines, workers):
    return [line for line in lines if line["type"] == "step" and len(line["workers"]) == workers]


def start_of(step):
    return step["starts"][0]  # by the first worker's clock, which saw all steps


def steps_until_balanced(steps, tolerance):
    """The first of the newcomer's steps in which its time is within the tolerance of the others' mean."""
    for number, step in enumerate(steps):
        *others, newcomer = step["compute_seconds"]
        mean = statistics.mean(others)
        if abs(newcomer - mean) <= tolerance * mean:
            return number
    return len(steps)


def one_round(model, workers):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "run.jsonl")
        environment = os.environ | {"TMPDIR": folder}
        words = [PROGRAM, "launch", "--quiet", "-n", str(workers), "--", *TRAIN, "--model", model, "--log", log]
        process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
        wait_for(log, process, lambda lines: len(steps_of(lines, workers)) >= BEFORE)
        subprocess.run([PROGRAM, "launch", "--quiet", "--attach", str(process.pid)], env=environment, check=True)
        lines = wait_for(log, process, lambda lines: len(steps_of(lines, workers + 1)) >= AFTER)
        process.terminate()
        process.wait()
    before, after = steps_of(lines, workers), steps_of(lines, workers + 1)
    step = statistics.median(start_of(b) - start_of(a) for a, b in zip(before[3:], before[4:]))
    return {
        "step_seconds": step,
        "waited_seconds": start_of(after[0]) - start_of(before[-1]) - step,
        "steps_until_balanced": steps_until_balanced(after, 0.25),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="before the newcomer")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    figures = {"workers": options.workers, "rounds": options.rounds}
    for name, model in MODELS.items():
        rounds = [one_round(model, options.workers) for _ in range(options.rounds)]
        waited = sorted(one["waited_seconds"] for one in rounds)
        figures[name] = {
            "model": model,
            "step_seconds": statistics.median(one["step_seconds"] for one in rounds),
            "waited_seconds": {"p50": statistics.median(waited), "max": waited[-1]},
            "steps_until_balanced": statistics.median(one["steps_until_balanced"] for one in rounds),
        }
        print("{model}: step {step_seconds:.3f} s; the others waited {p50:.3f} s at the median, {max:.3f} s at most; "
              "balanced after {steps_until_balanced:g} steps".format(**figures[name],
                                                                     **figures[name]["waited_seconds"]))  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
