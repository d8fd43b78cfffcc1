#!/usr/bin/env python3
"""One worker of a comparison: stock DDP with equal shares against jobs of several policies, in turns.

    build/isochron launch --cluster hl8 -- .venv/bin/python benchmarks/python/compare.py

The oracle is `static` with the speeds that the workers have by themselves, all at once; the ideal is their sum. Every
loop goes on in its next turn, so that only the first turn, which does not count, holds what a policy learns at the
start. The first worker prints a table of medians over the turns; --json FILE writes the figures. Among the policies
"alone" is the first worker by itself with the whole batch, and one may have options of the job: isochron+min_batch=0.

    build/isochron launch --cluster dynamic --steps 80 -- .venv/bin/python benchmarks/python/compare.py --alone isochron

Where speeds change with a job's steps, one policy after the other, or "ddp", goes through all of them by itself; the
first step counts there.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch
from loops import by_itself, network, ours, stock, timed
from tasks import TASKS
from torch.utils.data import default_collate

import isochron.torch as isochron
from isochron.torch.cluster import find_step_file


def solo(task, share, seconds, device):
    """Samples a second of this worker with nothing to exchange."""
    if not task.light and device == "cpu":
        share = min(share, 32)  # enough to keep it busy, and a second's work
    model = network(task, device)
    dataset = task.dataset(share)
    batch = default_collate([dataset[index] for index in range(share)])

    def compute():
        task.loss(model, batch, device).backward()
        if device != "cpu":
            torch.cuda.synchronize()

    compute()
    task.optimizer(model).step()  # the first one of a process imports torch's compiler, which takes seconds
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        compute()
        count += 1
    return share * count / (time.perf_counter() - start)


def whole_run(job, policy, steps, ideal, kind):
    """All steps of one loop, which tells the launcher of them if the job does not."""
    loop = stock(job, **kind) if policy == "ddp" else ours(policy=policy, **kind)
    published = find_step_file() if policy == "ddp" and job.is_first else None
    job.barrier()
    moments = [time.perf_counter()]
    for step in range(steps):
        if published is not None:
            published.publish(step)
        next(loop)
        moments.append(time.perf_counter())
    job.barrier()
    seconds = time.perf_counter() - moments[0]
    loop.close()  # and with it the threads that read ahead
    rate = kind["batch"] * steps / seconds
    times = [later - earlier for earlier, later in zip(moments, moments[1:], strict=False)]
    return {
        "policy": policy, "steps": steps, "ideal": ideal, "samples_per_second": rate, "share_of_solo": rate / ideal,
        "settled_share_of_solo": rate / ideal * (seconds / steps) * (steps - 1) / sum(times[1:]),  # but for the first
        "step_seconds": times,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--policies", default="uniform,omnilearn,lb-bsp,isochron,oracle")
    parser.add_argument("--alone", metavar="POLICY", help="a run of this one, or of ddp, without turns")
    parser.add_argument("--alone-steps", type=int, default=80)
    parser.add_argument("--turns", type=int, default=4, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--device", default="cpu", help="of this worker")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--task", choices=TASKS, default="cnn", help="cnn and lenet are for CPUs, the others for GPUs")
    parser.add_argument("--on-nonfinite", default="stop", help="what the job does about gradients that are not finite")
    parser.add_argument("--solo-seconds", type=float, default=6.0)
    parser.add_argument("--first-steps", type=int, help="of the first turn, which does not count; else --steps")
    parser.add_argument("--equal-steps", type=int, help="of a turn with equal shares, if others have --steps")
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
        run = whole_run(job, options.alone, options.alone_steps, ideal, kind)
        if job.rank == 0:
            print("{policy}: {samples_per_second:.0f} of {ideal:.0f} samples/s, {share_of_solo:.3f} of the solo speeds"
                  .format(**run))  # fmt: skip
            if options.json:
                options.json.write_text(json.dumps(run) + "\n")
        return
    oracle = "static:weights=" + "/".join(f"{speed:.1f}" for speed in speeds)
    loops = {"ddp": stock(job, **kind)}
    for name in options.policies.split(","):
        if name == "alone":
            loops[name] = by_itself(job, **kind)
            continue
        policy, *said = name.split("+")
        settings = {key: int(value) for key, value in (one.split("=") for one in said)}
        given = oracle if policy == "oracle" else policy
        loops[name] = ours(policy=given, on_nonfinite=options.on_nonfinite, **settings, **kind)
    rates = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name in loops:
            steps = (options.first_steps or options.steps) if turn == 0 else options.steps
            if options.equal_steps and name in ("ddp", "uniform"):
                steps = options.equal_steps
            seconds, _ = timed(job, loops[name], steps)
            rates[name].append(options.batch / seconds)
            if job.rank == 0:
                print(f"turn {turn}, {name}: {options.batch / seconds:.0f} samples/s", flush=True)
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
