#!/usr/bin/env python3
"""One worker of a comparison over slow links: stock DDP and a job in step against local rounds, in turns.

    build/isochron launch --cluster slow.toml -- .venv/bin/python benchmarks/python/local.py --steps 20

The cluster's file says how fast links are (docs/local.md has one). `fixed` is what DiLoCo and local SGD do elsewhere:
as many local steps of the same size on every worker; `local` deals the samples of a round by speed. A turn is one round
of --steps global batches, or as many steps; the first turns of each do not count. `idle` is the share of the workers'
time until the slowest has computed its part, in which they wait for it. The first worker prints a table of medians;
--json FILE writes the figures.
"""

import argparse
import json
import pathlib
import statistics

import torch
from compare import solo
from loops import ours, stock, timed
from tasks import TASKS

import isochron.torch as isochron


class Idle:
    """The waiting of all steps of a job, as it is told."""

    def __init__(self):
        self.shares = []

    def __call__(self, record):
        seconds = [worker.compute_seconds for worker in record.workers]
        self.shares.append(1.0 - statistics.fmean(seconds) / max(seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--steps", type=int, default=20, help="of a turn, and of a round")
    parser.add_argument("--turns", type=int, default=3, help="of each, after the first ones, which do not count")
    parser.add_argument("--first-turns", type=int, default=2, help="which do not count")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--task", choices=TASKS, default="cnn")
    parser.add_argument("--solo-seconds", type=float, default=5.0)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = TASKS[options.task]()
    job = isochron.Job(global_batch=options.batch)  # makes the group that the launcher says
    job.barrier()
    mine = solo(task, options.batch // job.size, options.solo_seconds, "cpu")
    ideal = job.sum([mine])[0]
    kind = {"task": task, "dataset": task.dataset(options.batch * options.steps), "batch": options.batch}
    rounds = {"sync": "local", "round_steps": options.steps}
    idle = {name: Idle() for name in ("bsp", "fixed", "local")}
    loops = {
        "ddp": stock(job, **kind),
        "bsp": ours(policy="isochron", on_step=idle["bsp"], **kind),
        "fixed": ours(policy="uniform", on_step=idle["fixed"], **rounds, **kind),
        "local": ours(policy="isochron", on_step=idle["local"], **rounds, **kind),
    }
    rates = {name: [] for name in loops}
    for _ in range(options.first_turns + options.turns):
        for name, loop in loops.items():
            seconds, _ = timed(job, loop, options.steps)
            rates[name].append(options.batch / seconds)
    if job.rank > 0:
        return
    results = []
    for name, all_turns in rates.items():
        counted = all_turns[options.first_turns :]
        ratios = [one / base for one, base in zip(counted, rates["ddp"][options.first_turns :], strict=True)]
        result = {"mode": name, "samples_per_second": statistics.median(counted), "over_ddp": statistics.median(ratios),
                  "share_of_solo": statistics.median(counted) / ideal}  # fmt: skip
        if name in idle:
            steps = options.turns * (options.steps if name == "bsp" else 1)
            result["idle"] = statistics.fmean(idle[name].shares[-steps:])
        results.append(result)
        print(", ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{value:>6}"
                        for key, value in result.items()))  # fmt: skip
    if options.json:
        report = {"ideal": ideal, "steps": options.steps, "batch": options.batch, "results": results}
        options.json.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
