#!/usr/bin/env python3
"""The native engine's workers with shares of one GPU, by NVIDIA's MPS: `isochron compare` under a watchdog.

    benchmarks/engine/gpu.py --program build/gpu/build/bin/isochron --nccl libnccl.so.2 --json gpu.json
    benchmarks/engine/gpu.py --table gpu.json

--nccl names a library of NCCL 2.30 or later, by which workers of one GPU exchange gradients and BatchNorm's statistics;
without it they go through host memory. Figures are over whole runs, first step included, but for the settled rate.
Every round is a run of its own; one that hangs in NCCL is ended by the watchdog, counted, and tried again.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import gpu_sharing  # noqa: E402

FOUR, TWO = ["50", "25", "15", "10"], ["75", "25"]
# Under a share of 75 % gradients of the Transformer are not finite in some passes of a process alone, too.
COMMON = "--precision bf16 --on-nonfinite ignore --test-samples 16 --rounds 1"
GPT2 = (
    "--model gpt2:layers=12,heads=12,width=768 --optimizer adamw --learning-rate 0.0003 --dataset synthetic-tokens "
    "--context 256 --train-samples 10240 --global-batch 256"
)
RESNET50 = "--model resnet50 --dataset synthetic --train-samples 40960 --global-batch 1024"
SETS = {
    "gpt2-75-25": (TWO, GPT2), "gpt2-50-25-15-10": (FOUR, GPT2),
    "resnet50-75-25": (TWO, RESNET50), "resnet50-50-25-15-10": (FOUR, RESNET50),
}  # fmt: skip


def measure(options, name):
    """What one round of compare found out; None if it took too long."""
    shares, arguments = SETS[name]
    with tempfile.TemporaryDirectory() as folder, gpu_sharing.mps() as places:
        cluster, result = pathlib.Path(folder) / "cluster.toml", pathlib.Path(folder) / "result.json"
        cores = max((len(os.sched_getaffinity(0)) - 2) // len(shares), 1)  # not what is measured
        workers = (f'[[worker]]\nname = "w{i}"\ncores = {cores}\ngpu_share = {s}\n' for i, s in enumerate(shares))
        cluster.write_text(f'name = "{name}"\n' + "".join(workers))
        command = [options.program, "compare", "--cluster", cluster, "--device", "cuda", "--policy", options.policies,
                   "--steps", options.steps, "--turn", options.turn, "--json", result, *COMMON.split(),
                   *arguments.split()]  # fmt: skip
        process = gpu_sharing.start(command, {**places, **gpu_sharing.nccl(options.nccl, len(shares))})
        try:
            code = process.wait(options.watchdog)
        except subprocess.TimeoutExpired:
            print(f"{name}: took longer than {options.watchdog:g} s", file=sys.stderr)
            return None
        finally:
            gpu_sharing.end([process])
        if code != 0:
            raise SystemExit(f"{name}: isochron compare ended with {code}")
        return json.loads(result.read_text())


def median(rows):
    """The medians of numbers, number by number, in whatever folders they lie; the first of anything else."""
    if isinstance(rows[0], dict):
        return {key: median([row[key] for row in rows]) for key in rows[0]}
    numbers = all(isinstance(row, (int, float)) for row in rows)
    return statistics.median(rows) if numbers else rows[0]


def merged(rounds, hung):
    """Rounds as one comparison: medians figure by figure, and the rounds beside them."""
    results = []
    for rows in zip(*(one["results"] for one in rounds), strict=True):
        rows = [{key: value for key, value in row.items() if key != "rounds"} for row in rows]
        results.append({**median(rows), "rounds": rows})
    return {**rounds[0], "rounds": len(rounds), "hung": hung, "results": results}


def table(files):
    heads = ["set", "policy", "samples/s", "settled", "p50 ms", "balance", "of solo", "x uniform", "of oracle"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for file in files:
        for name, found in json.loads(file.read_text()).items():
            rates = {row["policy"]: row["samples_per_second"] for row in found["results"]}
            for row in found["results"]:
                rate = row["samples_per_second"]
                print(f"| {name} | {row['policy']} | {rate:.0f} | {row['settled_samples_per_second']:.0f} | "
                      f"{1000 * row['step_seconds']['p50']:.0f} | {row['balance']:.3f} | {row['share_of_solo']:.3f} | "
                      f"{rate / rates['uniform']:.2f} | {rate / rates['oracle']:.3f} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("build/gpu/build/bin/isochron"))
    parser.add_argument("--nccl", type=pathlib.Path, help="libnccl.so.2, 2.30 or later")
    parser.add_argument("--sets", default=",".join(SETS), help="which of " + ", ".join(SETS))
    parser.add_argument("--policies", default="uniform,omnilearn,lb-bsp,isochron,oracle")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="of each policy in a round")
    parser.add_argument("--turn", type=int, default=20, help="steps of one policy before the next one")
    parser.add_argument("--watchdog", type=float, default=90.0, help="seconds for a round")
    parser.add_argument("--attempts", type=int, default=3, help="at rounds that hang")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, nargs="+", help="only print the figures of such files")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    for name in options.sets.split(","):
        if name not in SETS:
            parser.error(f"--sets is {name}; permitted: {', '.join(SETS)}")
    results = {}
    for name in options.sets.split(","):
        rounds, hung = [], 0
        while len(rounds) < options.rounds and hung < options.attempts:
            print(f"{name}, round {len(rounds) + 1}", flush=True)
            found = measure(options, name)
            rounds += [found] if found else []
            hung += 0 if found else 1
            if rounds:
                results[name] = merged(rounds, hung)
            if options.json:
                options.json.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
