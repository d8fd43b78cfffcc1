#!/usr/bin/env python3
"""What local rounds do to the accuracy: the same samples in step and in rounds, over several seeds.

    .venv/bin/python benchmarks/engine/local_accuracy.py --json benchmarks/engine/results/local-accuracy.json
    .venv/bin/python benchmarks/engine/local_accuracy.py --draw benchmarks/engine/results/local-accuracy.json

Four workers with shares of 8, 2, 2 and 1 train the CNN on Fashion-MNIST, with the same rates throughout: nothing is
tuned for rounds. Accuracy at equal samples does not depend on the machine. What it is at equal time,
docs/images/local.svg, follows from how many samples a second the simulator says that each mode takes on hl8 over a
given network.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARES = (8, 2, 2, 1)
MODES = {
    "bsp": [],
    "local, average, 20": ["--sync", "local", "--round-steps", "20"],
    "local, average, 80": ["--sync", "local", "--round-steps", "80"],
    "local, nesterov, 20": ["--sync", "local", "--round-steps", "20", "--outer", "nesterov"],
    "local, nesterov, 80": ["--sync", "local", "--round-steps", "80", "--outer", "nesterov"],
}


def train(options, mode, seed, folder):
    """Accuracy and loss on the test samples, behind each epoch."""
    log = pathlib.Path(folder) / "run.jsonl"
    common = ["train", "--model", "cnn", "--dataset", "fashion-mnist", "--data", ROOT / "data", "--policy", "static",
              "--optimizer", "adam", "--learning-rate", options.rate, "--global-batch", options.batch, "--seed", seed,
              "--epochs", options.epochs, "--train-samples", options.samples, "--test-samples", 5000,
              "--progress", "off", "--log", log, *MODES[mode]]  # fmt: skip
    command = [ROOT / ".venv/bin/mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
    for share in SHARES:
        command += [":"] if share != SHARES[0] or command[-1] != "none" else []
        command += ["-n", 1, options.isochron, *common, "--weight", share]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{mode}, seed {seed}: {done.stderr[-2000:]}")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [{key: one[key] for key in ("accuracy", "loss")} for one in records if one["type"] == "evaluation"]


def speed_of(options, link, sync, policy, steps=0):
    """Samples a second, simulated for a model of 1 MB."""
    words = ["simulate", "--cluster", "hl8", "--noise", 0.05, "--global-batch", options.batch, "--steps", 4000,
             "--gradient-bytes", "1mbyte", "--link-rate", link, "--sync", sync, "--policy", policy, "--json", "-",
             *(["--round-steps", steps] if steps else [])]  # fmt: skip
    command = [str(word) for word in (options.isochron, *words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["results"][0]["samples_per_second"]


def draw(options):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    measured = json.loads(options.draw.read_text())
    lines = [("bsp, equal batches", "bsp", "bsp", "uniform", 0, "#9a9a9a"),
             ("bsp", "bsp", "bsp", "isochron", 0, "#444444"),
             ("local, rounds of 20", "local, average, 20", "local", "isochron", 20, "#2a78b8"),
             ("local, rounds of 80", "local, average, 80", "local", "isochron", 80, "#d9822b")]  # fmt: skip
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axes, link in zip(panels, ("100mbit", "10mbit"), strict=True):
        for label, mode, sync, policy, steps, colour in lines:
            speed = speed_of(options, link, sync, policy, steps)
            curves = [[one["accuracy"] for one in run] for run in measured["runs"][mode]]
            means = [statistics.fmean(column) for column in zip(*curves, strict=True)]
            seconds = [measured["samples"] * (epoch + 1) / speed for epoch in range(len(means))]
            axes.plot(seconds, means, "o-", color=colour, label=label, markersize=4)
        axes.set(title=f"{link.removesuffix('mbit')} Mbit/s", xlabel="seconds", xscale="log")
        ticks = [3, 10, 30, 100, 300]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy on the test set")
    panels[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "docs/images/local.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=10240, help="of an epoch")
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--isochron", type=pathlib.Path, default=ROOT / "build/isochron")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--draw", type=pathlib.Path, help="train nothing, and draw what this file of --json has")
    options = parser.parse_args()
    if options.draw:
        draw(options)
        return
    runs = {mode: [] for mode in MODES}
    for seed in range(options.seeds):
        for mode, done in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                done.append(train(options, mode, seed, folder))
            print(f"seed {seed}, {mode}: {[round(one['accuracy'], 4) for one in done[-1]]}", flush=True)
            if options.json:
                settings = {name: getattr(options, name) for name in ("epochs", "samples", "batch", "rate")}
                options.json.write_text(json.dumps({**settings, "shares": SHARES, "runs": runs}) + "\n")
    for mode, done in runs.items():
        last = [one[-1]["accuracy"] for one in done]
        print(f"{mode:20} {statistics.fmean(last):.4f} ({min(last):.4f} to {max(last):.4f})")


if __name__ == "__main__":
    main()
