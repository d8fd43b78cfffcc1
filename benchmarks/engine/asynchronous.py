#!/usr/bin/env python3
"""Asynchronous training with equal batches against batches that take equally long: accuracy, staleness, speed.

Runs `isochron compare` on emulated clusters, once for every seed, and prints mean and spread at equal epochs and at
equal time (the accuracy of the slower method's last evaluation that the fastest one had behind it). Figures go to
--json FILE. A machine with 12 cores or more can run several of them at the same time (--together N).

    benchmarks/engine/asynchronous.py --models cnn --seeds 5 --steps 120 --learning-rate 0.01 --momentum 0.9 \\
      --methods uniform/asp,isochron/asp,isochron/asp+correction,isochron/ssp:0,isochron/ssp:1,isochron/bsp

A method is POLICY/SYNC: bsp, asp or ssp:BOUND, and +correction for --momentum-correction.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/isochron"
MODELS = {
    # For a machine without datasets; not hard.
    "cnn-synthetic": ["--model", "cnn", "--dataset", "synthetic", "--global-batch", "256"],
    "cnn": ["--model", "cnn", "--dataset", "fashion-mnist", "--global-batch", "256"],
    "resnet18": ["--model", "resnet18", "--dataset", "fashion-mnist", "--global-batch", "128"],
    # A quarter as wide, for two cores.
    "resnet18-narrow": ["--model", "resnet18:width=16", "--dataset", "fashion-mnist", "--global-batch", "128"],
}
METHOD = re.compile(r"(?P<policy>[^/]+)/(?P<sync>bsp|asp|ssp)(:(?P<bound>\d+))?(?P<correction>\+correction)?")


def method_of(text):
    match = METHOD.fullmatch(text)
    if not match or (match["sync"] == "ssp") != (match["bound"] is not None):
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: POLICY/bsp, /asp or /ssp:BOUND, also with +correction")
    return match


def run(options, model, cluster, seed, method):
    """The result of one training."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder, "result.json")
        steps = str(options.steps)
        out_of_step = ["--servers", str(options.servers), "--push-rate", options.push_rate]
        out_of_step += ["--staleness", method["bound"]] if method["bound"] else []
        out_of_step += ["--momentum-correction"] if method["correction"] else []
        subprocess.run(
            [
                PROGRAM, "compare", "--cluster", cluster, "--sync", method["sync"],
                *(out_of_step if method["sync"] != "bsp" else []),
                "--policy", method["policy"], "--rounds", "1", "--steps", steps, "--turn", steps,
                "--evaluate-every", str(max(options.steps // options.evaluations, 1)), "--solo-seconds", "0",
                "--learning-rate", str(options.learning_rate), "--seed", str(seed),
                "--train-samples", str(options.train_samples), "--test-samples", str(options.test_samples),
                "--logs", folder, "--momentum", str(options.momentum), "--json", result, *MODELS[model],
            ],  # fmt: skip
            check=True, stdout=subprocess.DEVNULL if options.together > 1 else None,
        )  # fmt: skip
        lane = json.loads(result.read_text())["results"][0]
        lines = pathlib.Path(folder, f"{method['policy']}.1.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        began = min(record["start"] for record in records if record["type"] == "step")
        lane["evaluations"] = [
            {"seconds": record["seconds"] - began, "accuracy": record["accuracy"]}
            for record in records
            if record["type"] == "evaluation"
        ]
        return lane


def run_all(options, model, cluster):
    """The results of every seed, by method. Seed after seed, so that drift of the machine meets all methods alike."""
    with concurrent.futures.ThreadPoolExecutor(options.together) as threads:
        runs = [
            {method.string: threads.submit(run, options, model, cluster, seed, method) for method in options.methods}
            for seed in range(1, options.seeds + 1)
        ]
        return [{method: lane.result() for method, lane in lanes.items()} for lanes in runs]


def accuracy_at(lane, seconds):
    """The result of the last evaluation up to that moment."""
    return max(
        (point for point in lane["evaluations"] if point["seconds"] <= seconds),
        key=lambda point: point["seconds"],
        default={"accuracy": 0.0},
    )["accuracy"]


def figures(lanes):
    """What is reported of one run, by method."""
    end = min(lane["evaluations"][-1]["seconds"] for lane in lanes.values())
    return {
        policy: {
            "accuracy": 100 * lane["test_accuracy"],
            "accuracy_at_equal_time": 100 * accuracy_at(lane, end),
            "mean_staleness": lane.get("staleness", {}).get("mean", 0.0),
            "max_staleness": lane.get("staleness", {}).get("max", 0.0),
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
    parser.add_argument("--methods", default="uniform/asp,isochron/asp", help="with commas between")
    parser.add_argument("--push-rate", default="batch-linear")
    parser.add_argument("--train-samples", type=int, default=0)
    parser.add_argument("--test-samples", type=int, default=2000)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--together", type=int, default=1, metavar="N", help="trainings at the same time (1)")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    try:
        options.methods = [method_of(one) for one in options.methods.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(f"--methods has {error}")
    everything = []
    print("| cluster | model | method | accuracy % | at equal time | staleness | max | samples/s |")
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
