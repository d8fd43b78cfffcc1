#!/usr/bin/env python3
"""What `train --serve` costs: step times with the live page served to one reader, and without, in turn.

Two runs beside each other in time make a pair; prints the median over all pairs of the ratio of their median steps,
and its quartiles, which say how far noise moves a pair. On a machine whose noise is larger than the cost, the processor
time of the threads that serve, as a share of the time that they were there, is the better figure: they cannot slow the
training by more where they run on its core, and not at all where they do not. --json FILE writes the figures.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time
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


def watch_threads(process, shares):
    """Adds what share of a core the threads that serve have taken, when the process has ended."""
    begin, share = time.monotonic(), 0.0
    while process.poll() is None:
        used = 0
        for task in pathlib.Path(f"/proc/{process.pid}/task").glob("*"):
            try:
                if (task / "comm").read_text() == "isochron-serve\n":
                    used += int((task / "schedstat").read_text().split()[0])
            except OSError:
                pass  # it has ended
        if used:
            share = used / 1e9 / (time.monotonic() - begin)
        time.sleep(0.25)
    shares.append(share)


def one_run(steps, served, shares):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "run.jsonl")
        words = [ROOT / "build/dev/bin/isochron", *TRAIN, "--steps", str(steps), "--log", log]
        process = subprocess.Popen([*words, "--serve", "0"] if served else words, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)  # fmt: skip
        if served:
            threading.Thread(target=watch_threads, args=(process, shares), daemon=True).start()
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                threading.Thread(target=read_events, args=(found[0],), daemon=True).start()
        if process.wait() != 0:
            raise SystemExit(f"the run ended with {process.returncode}")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line["seconds"] for line in lines if line["type"] == "step"][5:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    times = {True: [], False: []}
    shares = []
    for number in range(options.pairs):
        for served in (True, False) if number % 2 else (False, True):
            times[served].append(statistics.median(one_run(options.steps, served, shares)))
    ratios = [served / plain for served, plain in zip(times[True], times[False], strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    plain, served = (statistics.median(times[kind]) for kind in (False, True))
    print(f"step {1e3 * plain:.2f} ms, with the page served {1e3 * served:.2f} ms")
    print(f"ratio {ratio:.4f}, quartiles {low:.4f} and {high:.4f}")
    print(f"the threads that serve take {100 * statistics.median(shares):.3f} % of a core")
    if options.json:
        figures = {"plain": plain, "served": served, "ratio": ratio, "quartiles": [low, high], "pairs": len(ratios),
                   "share_of_a_core": statistics.median(shares)}  # fmt: skip
        options.json.write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
