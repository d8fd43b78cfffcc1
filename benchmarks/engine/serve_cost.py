#!/usr/bin/env python3
"""What `train --serve` costs: step times with the live page served to one reader, and without, in turn.

Prints the ratio of the medians; --json FILE writes the figures.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = [
    "train", "--dataset", "synthetic", "--model", "cnn", "--train-samples", "8192", "--test-samples", "64",
    "--global-batch", "64", "--epochs", "1000", "--eval-every", "0", "--progress", "off",
]  # fmt: skip


def read_events(url):
    try:
        with urllib.request.urlopen(url + "events") as answer:
            while answer.readline():
                pass
    except OSError:
        pass  # the run is over


def one_run(steps, served):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "run.jsonl")
        words = [ROOT / "build/dev/bin/isochron", *TRAIN, "--steps", str(steps), "--log", log]
        process = subprocess.Popen([*words, "--serve", "0"] if served else words, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                threading.Thread(target=read_events, args=(found[0],), daemon=True).start()
        if process.wait() != 0:
            raise SystemExit(f"the run ended with {process.returncode}")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line["seconds"] for line in lines if line["type"] == "step"][5:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    times = {True: [], False: []}
    for number in range(options.rounds):
        for served in (True, False) if number % 2 else (False, True):
            times[served] += one_run(options.steps, served)
    medians = {served: statistics.median(seconds) for served, seconds in times.items()}
    ratio = medians[True] / medians[False]
    print(f"step {1e3 * medians[False]:.2f} ms, with the page served {1e3 * medians[True]:.2f} ms: {ratio:.4f}")
    if options.json:
        options.json.write_text(json.dumps({"plain": medians[False], "served": medians[True], "ratio": ratio}) + "\n")


if __name__ == "__main__":
    main()
