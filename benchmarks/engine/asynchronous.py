#!/usr/bin/env python3
"""Asynchronous training with equal batches against batches that take equally long: accuracy, staleness, speed.

Runs `isochron compare --sync asp` on emulated clusters, once for every seed, and prints mean and spread at equal epochs
and at equal time (the accuracy of the slower policy's last evaluation that the faster one had behind it). Figures go to
--json FILE. A machine with 12 cores or more can run seeds and policies at the same time (--together).
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/isochron"
MODELS = {
    "cnn": ["--model", "cnn", "--dataset", "fashion-mnist", "--global-batch", "256"],
    "resnet18": ["--model", "resnet18", "--dataset", "fashion-mnist", "--global-batch", "128"],
    # A quarter as wide, for two cores.
    "resnet18-narrow": ["--model", "resnet18:width=16", "--dataset", "fashion-mnist", "--global-batch", "128"],
}
POLICIES = ["uniform", "isochron"]


def run(options, model, cluster, seed, policies):
    """The results of one comparison, by policy."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder, "result.json")
        steps = str(options.steps)
        subprocess.run(
            [
                PROGRAM, "compare", "--cluster", cluster, "--sync", "asp", "--servers", str(options.servers),
                "--policy", ",".join(policies), "--rounds", "1", "--steps", steps, "--turn", steps,
                "--evaluate-every", str(max(options.steps // options.evaluations, 1)), "--solo-seconds", "0",
                "--learning-rate", str(options.learning_rate), "--push-rate", options.push_rate,
                "--seed", str(seed), "--train-samples", str(options.train_samples),
                "--test-samples", str(options.test_samples), "--logs", folder,
                "--momentum", str(options.momentum), "--json", result, *MODELS[model],
                *(["--momentum-correction"] if options.momentum_correction else []),
            ],  # fmt: skip
            check=True,
        )
        lanes = {lane["policy"]: lane for lane in json.loads(result.read_text())["results"]}
        for policy, lane in lanes.items():
            lines = pathlib.Path(folder, f"{policy}.1.jsonl").read_text().splitlines()
            records = [json.loads(line) for line in lines]
            began = min(record["start"] for record in records if record["type"] == "step")
            lane["evaluations"] = [
                {"seconds": record["seconds"] - began, "accuracy": record["accuracy"]}
                for record in records
                if record["type"] == "evaluation"
            ]
        return lanes


def run_all(options, model, cluster):
    """The results of every seed, by policy."""
    seeds = range(1, options.seeds + 1)
    if not options.together:
        return [run(options, model, cluster, seed, POLICIES) for seed in seeds]
    with concurrent.futures.ThreadPoolExecutor(len(seeds) * len(POLICIES)) as threads:
        runs = [[threads.submit(run, options, model, cluster, seed, [policy]) for policy in POLICIES] for seed in seeds]
        return [{policy: lane for one in lanes for policy, lane in one.result().items()} for lanes in runs]


def accuracy_at(lane, seconds):
    """The result of the last evaluation up to that moment."""
    return max(
        (point for point in lane["evaluations"] if point["seconds"] <= seconds),
        key=lambda point: point["seconds"],
        default={"accuracy": 0.0},
    )["accuracy"]


def figures(lanes):
    """What is reported of one run, by policy."""
    end = min(lane["evaluations"][-1]["seconds"] for lane in lanes.values())
    return {
        policy: {
            "accuracy": 100 * lane["test_accuracy"],
            "accuracy_at_equal_time": 100 * accuracy_at(lane, end),
            "mean_staleness": lane["staleness"]["mean"],
            "max_staleness": lane["staleness"]["max"],
            "samples_per_second": lane["samples_per_second"],
        }
        for policy, lane in lanes.items()
    }


def spread(values):
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", default="hl8,dynamic")
    parser.add_argument("--models", default="cnn,resnet18-narrow")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300, help="global batches")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--momentum-correction", action="store_true")
    parser.add_argument("--push-rate", default="batch-linear")
    parser.add_argument("--train-samples", type=int, default=0)
    parser.add_argument("--test-samples", type=int, default=2000)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--together", action="store_true", help="run seeds and policies at the same time")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    everything = []
    print("| cluster | model | policy | accuracy % | at equal time | staleness | max | samples/s |")
    print("|---|---|---|---|---|---|---|---|")
    for cluster in options.clusters.split(","):
        for model in options.models.split(","):
            runs = [figures(lanes) for lanes in run_all(options, model, cluster)]
            everything.append({"cluster": cluster, "model": model, "runs": runs})
            for policy in runs[0]:
                columns = [spread([one[policy][key] for one in runs]) for key in runs[0][policy]]
                print(f"| {cluster} | {model} | {policy} | {' | '.join(columns)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
