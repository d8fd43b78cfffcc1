#!/usr/bin/env python3
"""Samples of unequal length on unequal workers: the table of docs/benchmarks.md.

    benchmarks/lengths.py run --json lengths.json       # hl8, hl4, three equal workers; packed and padded
    benchmarks/lengths.py run --json lengths.json --clusters hl8 --collates packed    # one of them, up to 4 minutes
    benchmarks/lengths.py table lengths.json            # as the documents have it
    benchmarks/lengths.py study --json study.json       # simulated, 4 to 256 workers, noise and changing speeds
    benchmarks/lengths.py table study.json

`run` starts benchmarks/python/lengths.py on each emulated cluster. What FILE has already of clusters, collations and
batches is not run again, so that a long comparison can be made in short turns; one that is cut off at --limit seconds
keeps the turns that it has finished. `study` needs the program alone.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTERS = ("hl8", "hl4", "equal3")
COLLATES = ("packed", "padded")
EQUAL3 = "".join(f'[[worker]]\nname = "w{number}"\ncores = 12\n' for number in range(3))
LOOPS = ("ddp", "isochron by count", "lengths as if equal", "isochron by cost")
# Workers, global batch, cost, and steps of the study.
STUDY = [(4, 32, "linear", 400), (4, 128, "attention:width=341", 400), (8, 64, "attention:width=341", 400),
         (16, 256, "linear", 400), (64, 1024, "linear", 300), (256, 4096, "attention:width=341", 200)]  # fmt: skip
SPEEDS = (8, 3, 5, 1, 2, 6, 4, 7)  # over and over


def write(path, found):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


def run_real(options):
    """Writes after every one of them."""
    there = json.loads(options.json.read_text()) if options.json.exists() else {"kind": "run", "runs": []}
    done = {(run["cluster"], run["collate"], run["batch"]) for run in there["runs"]}
    batches = map(int, options.batches.split(","))
    wanted = itertools.product(options.clusters.split(","), options.collates.split(","), batches)
    for cluster, collate, batch in wanted:
        if (cluster, collate, batch) in done:
            continue
        found = run_one(options, cluster, collate, batch)
        if found is None:
            print(f"{cluster}, {collate}, {batch}: no turn was finished within {options.limit} s", file=sys.stderr)
            continue
        there["runs"].append({"cluster": cluster, **found})
        write(options.json, there)


def run_one(options, cluster, collate, batch):
    """What it has found within the limit; None: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        found, three = pathlib.Path(folder) / "found.json", pathlib.Path(folder) / "equal3.toml"
        three.write_text(EQUAL3)
        worker = [options.python, ROOT / "benchmarks/python/lengths.py", "--collate", collate, "--json", found,
                  "--turns", options.turns, "--steps", options.steps, "--first-steps", options.first_steps,
                  "--text", options.text, "--cost", options.cost, "--batch", batch]  # fmt: skip
        named = three if cluster == "equal3" else cluster
        command = [options.program, "launch", "--cluster", named, "--", *worker]
        path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]))
        launcher = subprocess.Popen([*map(str, command)], env={**os.environ, "PYTHONPATH": path})
        try:
            if launcher.wait(options.limit):
                raise SystemExit(f"{cluster}, {collate}: the launcher ended with status {launcher.returncode}")
        except subprocess.TimeoutExpired:
            launcher.send_signal(signal.SIGTERM)  # it ends its workers
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(30)
            launcher.kill()
            launcher.wait()
        return json.loads(found.read_text()) if found.exists() else None


def cluster_of(workers, changing, steps):
    """Speeds 1 to 8, half a sample of fixed cost. Where they change, every fourth worker goes on at half its speed
    after a third of the run, and after two thirds as before, while another fourth becomes slower then."""
    lines = [f'name = "study{workers}"']
    for number in range(workers):
        cores = SPEEDS[number % len(SPEEDS)]
        lines += ["[[worker]]", f'name = "w{number}"', f"cores = {cores}", "overhead = 0.5"]
    for number in range(workers if changing else 0):
        cores = SPEEDS[number % len(SPEEDS)]
        changes = {2: [(1, cores / 2), (2, cores)], 1: [(2, cores / 2)]}.get(number % 4, [])
        for third, value in changes:
            lines += ["[[change]]", f"at_step = {third * steps // 3}", f'worker = "w{number}"', f"cores = {value}"]
    return "\n".join(lines) + "\n"


def simulate(options, workers, batch, cost, steps, collate, changing):
    """Total times over the oracle's, by policy: means over seeds."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        cluster, found = pathlib.Path(folder) / "cluster.toml", pathlib.Path(folder) / "found.json"
        cluster.write_text(cluster_of(workers, changing, steps))
        for seed in range(options.seeds):
            command = [options.program, "simulate", "--cluster", cluster, "--global-batch", batch, "--steps", steps,
                       "--noise", "0.05", "--lengths", "lognormal", "--cost", cost, "--collate", collate, "--deal",
                       "both", "--policy", "uniform,isochron", "--seed", seed, "--json", found]  # fmt: skip
            subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
            for result in json.loads(found.read_text())["results"]:
                times.setdefault(result["policy"], []).append(result["time_over_oracle"])
    return {policy: sum(all_of) / len(all_of) for policy, all_of in times.items()}


def run_study(options):
    rows = []
    for workers, batch, cost, steps in STUDY:
        for collate in COLLATES:
            for changing in (False, True):
                times = simulate(options, workers, batch, cost, steps, collate, changing)
                rows.append({"workers": workers, "batch": batch, "cost": cost, "steps": steps, "collate": collate,
                             "changing": changing, "times": times})  # fmt: skip
    return {"kind": "study", "rows": rows}


def table_of_study(found):
    """Times over the oracle's."""
    yield "| workers | B | cost | collation | speeds | by cost | of the oracle | by count | lengths as if equal |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in found["rows"]:
        times = row["times"]
        cost = "L" if row["cost"] == "linear" else "L + L^2 / 2046"
        speeds = "changing" if row["changing"] else "constant"
        mine, counted, equal = (times[name] for name in ("isochron", "isochron by count", "uniform"))
        told = f"{mine:.3f} | {1 / mine:.3f} | {counted:.2f} | {equal:.2f}"
        yield f"| {row['workers']} | {row['batch']} | {cost} | {row['collate']} | {speeds} | {told} |"


def table_of_runs(found):
    yield ("| cluster | collation | B | turns | DDP | by count | lengths as if equal | by cost | over by count, turn "
           "by turn | over lengths as if equal | tokens/s |")  # fmt: skip
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for run in found["runs"]:
        by_name = {one["name"]: one for one in run["results"]}
        rates = " | ".join(f"{by_name[name]['samples_per_second']:.1f}" for name in LOOPS)
        last = by_name[LOOPS[-1]]
        pairs = zip(last["turns"], by_name[LOOPS[2]]["turns"], strict=True)
        equal = statistics.median(mine / other for mine, other in pairs)
        gained = f"{last['over_by_count']:.2f} | {equal:.2f} | {last['tokens_per_second']:.0f}"
        yield f"| {run['cluster']} | {run['collate']} | {run['batch']} | {run['turns']} | {rates} | {gained} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "study", "table"))
    parser.add_argument("file", type=pathlib.Path, nargs="?", help="of a table: what run or study wrote")
    parser.add_argument("--json", type=pathlib.Path, help="where run and study write")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/isochron")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--clusters", default=",".join(CLUSTERS), help="names, and equal3: three equal workers")
    parser.add_argument("--collates", default=",".join(COLLATES))
    parser.add_argument("--cost", default="attention:width=128", help="of a sequence; attention: learned")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for a cluster, collation and batch")
    parser.add_argument("--batches", default="60", help="global batches, with commas between")
    parser.add_argument("--text", choices=("speeches", "lognormal"), default="speeches")
    parser.add_argument("--seeds", type=int, default=3, help="of the study")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--first-steps", type=int, default=20)
    options = parser.parse_args()
    of_file = options.what == "table"
    if of_file != (options.file is not None) or of_file != (options.json is None):
        parser.error("table needs a file; run and study need --json FILE")
    if options.what == "table":
        found = json.loads(options.file.read_text())
        print("\n".join((table_of_runs if found["kind"] == "run" else table_of_study)(found)))
        return
    if options.what == "run":
        run_real(options)
    else:
        write(options.json, run_study(options))


if __name__ == "__main__":
    main()
