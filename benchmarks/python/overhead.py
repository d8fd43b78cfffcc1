#!/usr/bin/env python3
"""What Isochron costs on equal workers: its loop against stock DDP's, in turns within one run.

    torchrun --nproc-per-node 2 benchmarks/python/overhead.py --json overhead.json

Both train the same network on the same pictures, with shares that the policy keeps equal, since it should find nothing
to gain (--policy uniform leaves it no choice). Turns alternate, and so does who goes first; the first turn of each is
thrown away. Steps should take 50 ms or more: raise --batch until they do. Besides wall time the CPU time of rank 0 is
compared, which other work on the machine disturbs less.
"""

import argparse
import json
import pathlib
import statistics

import torch
from loops import ours, stock, timed
from tasks import TASKS

import isochron.torch as isochron


def compare(times):
    """Medians, and by how much the one is longer than the other, turn by turn."""
    ratios = [mine / theirs - 1.0 for mine, theirs in zip(times["isochron"], times["ddp"], strict=True)]
    return {
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "overhead": statistics.median(ratios),
        "overhead_quartiles": statistics.quantiles(ratios, n=4),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="of all workers together")
    parser.add_argument("--turns", type=int, default=20, help="of each")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--policy", default="isochron")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    job = isochron.Job(global_batch=options.batch, device="cpu")  # makes the group
    task = TASKS["cnn"]()
    kind = {"task": task, "dataset": task.dataset(options.batch * 50), "batch": options.batch}
    loops = {"ddp": stock(job, **kind), "isochron": ours(policy=options.policy, **kind)}
    times = {name: [] for name in loops}
    cpu_times = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name in sorted(loops, reverse=turn % 2 == 1):
            seconds, cpu = timed(job, loops[name], options.steps)
            if turn > 0:
                times[name].append(seconds)
                cpu_times[name].append(cpu)
    result = {
        "step": compare(times),
        "cpu": compare(cpu_times),
        "turns": options.turns,
        "steps_per_turn": options.steps,
        "workers": job.size,
        "policy": options.policy,
    }
    if job.rank == 0:
        print(json.dumps(result, indent=1))
        if options.json:
            options.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
