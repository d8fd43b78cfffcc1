#!/usr/bin/env python3
"""How much of the sum of the workers' speeds PyTorch, the native engine and stock DDP reach on unequal clusters.

    benchmarks/efficiency.py --json efficiency.json
    benchmarks/efficiency.py --from efficiency.json                 the tables for docs/benchmarks.md

All train the same network (the native `cnn`) with the same global batch on emulated clusters, each in launches of its
own that alternate: native, PyTorch, DDP, and again. Runs are whole, first step included, and each has the solo speeds
of its own workers measured right before it. Clusters run at the same time where there are cores: each on two of its
own, which is what they are scaled to. On a machine with fewer than eight cores they run one after the other.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
NATIVE, TORCH, DDP = "native", "PyTorch", "stock DDP"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="hl2,hl4,hl8,dynamic")
    parser.add_argument("--kinds", default=f"{NATIVE},{TORCH},{DDP}")
    parser.add_argument("--batch", type=int, default=384)
    parser.add_argument("--steps", type=int, default=60, help="of a run of ours; dynamic has 80")
    parser.add_argument("--stock-steps", type=int, default=20, help="of a run of DDP, which does not change")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=270.0, help="no run begins later than this")
    parser.add_argument("--solo-seconds", type=float, default=3.0)
    parser.add_argument("--isochron", default=str(ROOT / "build/dev/bin/isochron"), help="the program")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures, written anew after every run")
    parser.add_argument("--from", dest="given", type=pathlib.Path, help="print these, and measure nothing")
    return parser.parse_args()


def command_of(kind, cluster, options, file):
    steps = 80 if cluster == "dynamic" else options.stock_steps if kind == DDP else options.steps
    common = ["--solo-seconds", str(options.solo_seconds), "--json", str(file)]
    if kind == NATIVE:
        return [
            options.isochron, "compare", "--cluster", cluster, "--policy", "isochron", "--model", "cnn", "--dataset",
            "synthetic", "--test-samples", "64", "--global-batch", str(options.batch), "--steps", str(steps), "--turn",
            str(steps), "--rounds", "1", *common]  # fmt: skip
    return [
        options.isochron, "launch", "--cluster", cluster, "--steps", str(steps), "--", options.python,
        str(ROOT / "benchmarks/python/compare.py"), "--task", "lenet", "--batch", str(options.batch), "--alone",
        "ddp" if kind == DDP else "isochron", "--alone-steps", str(steps), *common]  # fmt: skip


def figures_of(kind, file):
    told = json.loads(file.read_text())
    if kind == NATIVE:
        (result,) = told["results"]
        ideal = statistics.mean(sum(stage["workers"]) for stage in told["solo_samples_per_second"])
        settled = result["settled_samples_per_second"] / result["samples_per_second"] * result["share_of_solo"]
        return {
            "samples_per_second": result["samples_per_second"], "ideal": ideal,
            "share_of_solo": result["share_of_solo"], "settled_share_of_solo": settled,
            "bound": told.get("share_of_solo_bound"), "steps": told["steps"],
        }  # fmt: skip
    return {**told, "bound": None}


def run_cluster(cluster, cores, options, note, end):
    """All rounds of one cluster, on these cores."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for kind in options.kinds.split(","):
                if time.monotonic() > end:
                    note(cluster, kind, number, {"error": "there was no time left"})
                    continue
                file = pathlib.Path(folder) / f"{kind}.json"
                command = ["taskset", "-c", cores, *command_of(kind, cluster, options, file)]
                began = time.monotonic()
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                figures = figures_of(kind, file) if done.returncode == 0 else {"error": done.stderr[-2000:]}
                note(cluster, kind, number, {**figures, "took": time.monotonic() - began})
                file.unlink(missing_ok=True)


def measure(options):
    cores = sorted(os.sched_getaffinity(0))
    clusters = options.clusters.split(",")
    pairs = [f"{one},{other}" for one, other in zip(cores[::2], cores[1::2], strict=False)] or [str(cores[0])]
    at_once = min(len(pairs) // 2 or 1, len(clusters))  # half of the machine is left idle
    figures = {
        "command": " ".join(sys.argv), "cores": len(cores), "system": platform.platform(), "at_once": at_once,
        "batch": options.batch, "runs": [],
    }  # fmt: skip

    def note(cluster, kind, number, run):
        figures["runs"].append({"cluster": cluster, "kind": kind, "round": number, **run})
        print(cluster, kind, number, run.get("share_of_solo", run.get("error")), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures) + "\n")

    end = time.monotonic() + options.seconds
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        runs = [
            pool.submit(run_cluster, cluster, pairs[2 * (place % at_once) % len(pairs)], options, note, end)
            for place, cluster in enumerate(clusters)
        ]
        for run in runs:
            run.result()
    return figures


def medians(figures, cluster, kind, key):
    values = [run[key] for run in figures["runs"]
              if (run["cluster"], run["kind"]) == (cluster, kind) and run.get(key) is not None]  # fmt: skip
    return statistics.median(values) if values else None


def shown(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def tables(figures):
    """As docs/benchmarks.md has them."""
    runs = figures["runs"]
    clusters = list(dict.fromkeys(run["cluster"] for run in runs))
    kinds = list(dict.fromkeys(run["kind"] for run in runs))
    lines = ["| cluster | | samples/s | x stock DDP | of solo | but for the first step | of solo, run by run |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for cluster in clusters:
        stock = medians(figures, cluster, DDP, "samples_per_second")
        for kind in kinds:
            rate = medians(figures, cluster, kind, "samples_per_second")
            by_run = [run["share_of_solo"] for run in runs
                      if (run["cluster"], run["kind"]) == (cluster, kind) and "share_of_solo" in run]  # fmt: skip
            cells = [
                cluster, kind, shown(rate, 0), shown(rate / stock if rate and stock else None, 2),
                shown(medians(figures, cluster, kind, "share_of_solo"), 3),
                shown(medians(figures, cluster, kind, "settled_share_of_solo"), 3),
                " ".join(f"{one:.3f}" for one in by_run)]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        if bound := medians(figures, cluster, NATIVE, "bound"):
            lines.append(f"| | *bound by noise* | | | {bound:.3f} | | |")
    lines += [f"| {run['cluster']} | {run['kind']} | failed: {run['error'].splitlines()[-1]} | | | | |"
              for run in runs if run.get("error")]  # fmt: skip
    return lines


def main():
    options = parse()
    figures = json.loads(options.given.read_text()) if options.given else measure(options)
    print("\n".join(tables(figures)))


if __name__ == "__main__":
    main()
