#!/usr/bin/env python3
"""One worker of a comparison: stock DDP with equal shares against jobs of several policies, in turns.

    build/isochron launch --cluster hl8 -- .venv/bin/python benchmarks/python/compare.py

The oracle is `static` with the speeds that the workers have by themselves, all at once; the ideal is their sum. Every
loop goes on in its next turn, so that only the first turn, which does not count, holds what a policy learns at the
start. The first worker prints a table of medians over the turns; --json FILE writes the figures.

    build/isochron launch --cluster dynamic --steps 80 -- .venv/bin/python benchmarks/python/compare.py --alone isochron

Where speeds change with a job's steps, one policy after the other goes through all of them by itself.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch
from loops import network, ours, stock, timed
from tasks import TASKS
from torch.utils.data import default_collate

import isochron.torch as isochron


def solo(task, share, seconds, device):
    """Samples a second of this worker with nothing to exchange."""
    if type(task) is not TASKS["cnn"] and device == "cpu":
        share = min(share, 32)  # enough to keep it busy, and a second's work
    model = network(task, device)
    dataset = task.dataset(share)
    batch = default_collate([dataset[index] for index in range(share)])

    def compute():
        task.loss(model, batch, device).backward()
        if device != "cpu":
            torch.cuda.synchronize()

    compute()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        compute()
        count += 1
    return share * count / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--policies", default="uniform,omnilearn,lb-bsp,isochron,oracle")
    parser.add_argument("--alone", metavar="POLICY", help="80 steps of this one, without turns")
    parser.add_argument("--turns", type=int, default=4, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--device", default="cpu", help="of this worker")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--task", choices=TASKS, default="cnn", help="what is trained; all but cnn are for GPUs")
    parser.add_argument("--numbers", default="stop", help="what the job does about gradients that are not finite")
    parser.add_argument("--solo-seconds", type=float, default=6.0)
    parser.add_argument("--first-steps", type=int, help="of the first turn, which does not count; else --steps")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = TASKS[options.task]()
    kind = {"task": task, "device": options.device}
    job = isochron.Job(global_batch=options.batch, device=options.device)  # makes the group that the launcher says
    job.barrier()
    mine = solo(share=options.batch // job.size, seconds=options.solo_seconds, **kind)
    speeds = job.sum([mine if rank == job.rank else 0.0 for rank in range(job.size)])
    kind.update(dataset=task.dataset(options.batch * 40), batch=options.batch)
    ideal = sum(speeds)
    if options.alone:
        loop = ours(policy=options.alone, **kind)
        seconds, _ = timed(job, loop, 80)
        loop.close()  # and with it the threads that read ahead
        if job.rank == 0:
            rate = options.batch / seconds
            print(f"{options.alone}: {rate:.0f} of {ideal:.0f} samples/s, {rate / ideal:.3f} of the solo speeds")
        return
    oracle = "static:weights=" + "/".join(f"{speed:.1f}" for speed in speeds)
    loops = {"ddp": stock(job, **kind)}
    for policy in options.policies.split(","):
        policy_or_oracle = oracle if policy == "oracle" else policy
        loops[policy] = ours(policy=policy_or_oracle, numbers=options.numbers, **kind)
    rates = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name in loops:
            seconds, _ = timed(job, loops[name], (options.first_steps or options.steps) if turn == 0 else options.steps)
            rates[name].append(options.batch / seconds)
    if job.rank > 0:
        return
    backend = job._world._backend
    print(f"over {backend}, ideal {ideal:.0f} samples/s, the sum of " + ", ".join(f"{speed:.0f}" for speed in speeds))
    results = []
    for name, (first, *mine) in rates.items():
        results.append({"policy": name, "samples_per_second": statistics.median(mine)})
        for other in ("ddp", "oracle"):
            if other in rates:
                ratios = [one / base for one, base in zip(mine, rates[other][1:], strict=True)]
                results[-1][f"over_{other}"] = statistics.median(ratios)
                results[-1][f"over_{other}_at_first"] = first / rates[other][0]  # the turn that does not count
        results[-1]["share_of_solo"] = results[-1]["samples_per_second"] / ideal
        print(", ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{value:>10}"
                        for key, value in results[-1].items()))  # fmt: skip
    if options.json:
        report = {"backend": backend, "ideal": ideal, "speeds": speeds, "results": results}
        options.json.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
