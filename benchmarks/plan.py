#!/usr/bin/env python3
"""Checks what `isochron plan` predicts against real runs on emulated clusters.

In every round it profiles the model on one core before each cluster, asks for a plan and trains. A ratio is predicted
over measured samples per second, without the first steps of a run, in which the policy learns. With --bound R it ends
with 1 if a median ratio is not between 1/R and R.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The first worker writes the profile. The second keeps the machine as busy as a built-in cluster on two cores does:
# cores that share caches and memory are slower together than alone.
PROFILED = "[[worker]]\ncores = 1.0\n[[worker]]\ncores = 0.5\n"


def run(*command, folder):
    result = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {result.returncode}\n{result.stderr}")
    return result.stdout


class Checker:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.job = ["--model", options.model, "--dataset", options.dataset, "--data", options.data.resolve()]
        (folder / "profiled.toml").write_text(PROFILED)

    def isochron(self, *words):
        return run(self.options.isochron.resolve(), *words, folder=self.folder)

    def profile(self):
        self.isochron("launch", "--quiet", "--cluster", "profiled.toml", "--", "profile", *self.job, "--quiet",
                      "--seconds", self.options.profile_seconds, "--max-batch", self.options.max_batch,
                      "-o", "p.json")  # fmt: skip
        profile = json.loads((self.folder / "p.json").read_text())
        last = profile["points"][-1]
        print(f"profile: {last['batch'] / last['seconds']['p50']:.0f} samples/s at {last['batch']}, "
              f"update {1e3 * profile['update_seconds']:.2f} ms, prepare {1e6 * profile['prepare_seconds']:.1f} us, "
              f"copy {1e9 * profile['copy_seconds']:.2f} ns, {profile['parameter_bytes'] / 1e6:.1f} MB")

    def predict(self, cluster):
        """Samples per second, and what a step is made of."""
        document = json.loads(self.isochron("plan", "--cluster", cluster, "--model-profile", "p.json", "--global-batch",
                                            self.options.global_batch, "--json", "-"))  # fmt: skip
        return document["results"][0]

    def measure(self, cluster):
        """The same of a real run."""
        self.isochron("launch", "--quiet", "--cluster", cluster, "--", "train", *self.job, "--policy", "isochron",
                      "--global-batch", self.options.global_batch, "--steps", self.options.steps, "--epochs", 1000,
                      "--eval-every", 0, "--quiet", "--test-samples", 100, "--log", "run.jsonl")  # fmt: skip
        lines = [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]
        steps = [line for line in lines if line["type"] == "step"][self.options.skip :]
        # From the start of one step to the start of the next: whatever a step takes is in it.
        seconds = (steps[-1]["start"] - steps[0]["start"]) / (len(steps) - 1)
        return {
            "samples_per_second": sum(sum(step["batch_sizes"]) for step in steps[:-1]) / (len(steps) - 1) / seconds,
            "seconds": seconds,
            "compute": statistics.mean(max(step["compute_seconds"]) for step in steps),
            "batch_sizes": steps[-1]["batch_sizes"],
        }


def show(cluster, predicted, measured):
    step = predicted["step_seconds"]
    ratio = predicted["samples_per_second"] / measured["samples_per_second"]
    print(f"{cluster:<6} predicted {predicted['samples_per_second']:7.1f}/s {1e3 * step['mean']:6.1f} ms"
          f" (compute {1e3 * step['compute']:.1f}, exchange {1e3 * step['exchange']:.1f}, "
          f"update {1e3 * step['update']:.1f}) {predicted['batch_sizes']}"
          f"  measured {measured['samples_per_second']:7.1f}/s {1e3 * measured['seconds']:6.1f} ms"
          f" (compute {1e3 * measured['compute']:.1f}) {measured['batch_sizes']}  ratio {ratio:.3f}",
          flush=True)  # fmt: skip
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isochron", type=pathlib.Path, default=ROOT / "build" / "isochron")
    parser.add_argument("--clusters", default="hl2,hl4,hl8")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data")
    parser.add_argument("--global-batch", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--skip", type=int, default=20, help="steps in which the policy learns")
    parser.add_argument("--profile-seconds", type=float, default=20)
    parser.add_argument("--max-batch", type=int, default=512)
    parser.add_argument("--bound", type=float, help="end with the first round that is all within it, else fail")
    options = parser.parse_args()

    ratios = {cluster: [] for cluster in options.clusters.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(options, pathlib.Path(folder))
        for _ in range(options.rounds):
            for cluster, found in ratios.items():
                checker.profile()
                found.append(show(cluster, checker.predict(cluster), checker.measure(cluster)))
            if options.bound and all(1 / options.bound <= found[-1] <= options.bound for found in ratios.values()):
                return 0
    for cluster, found in ratios.items():
        print(f"{cluster:<6} predicted over measured: {', '.join(f'{ratio:.3f}' for ratio in found)}; "
              f"median {statistics.median(found):.3f}")  # fmt: skip
    return 1 if options.bound else 0


sys.exit(main())
