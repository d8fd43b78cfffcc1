#!/usr/bin/env python3
"""A PyTorch worker of breakdown.py: stock DDP and a job with equal shares, in turns."""

import argparse
import json
import pathlib
import sys

import torch
from phases import Phases, Turns
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import isochron.torch as isochron
from isochron.torch import parallel, pool, source, steps, stopwatch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
from loops import network
from tasks import TASKS


def watch(phases):
    """Says which functions of the package are which phase."""
    for phase, (owner, names) in {
        "loader": (source.MapSource, ["take"]),
        "collate": (pool, ["default_collate"]),
        "report": (steps.Steps, ["_measure", "_send", "_gather_reports"]),
        "hooks": (stopwatch.Stopwatch, ["_note", "_end_computing", "_end_pass"]),
        "finite": (steps.Steps, ["_judge"]),
        "undo": (parallel.Models, ["remember"]),
        "backward": (torch.Tensor, ["backward"]),
    }.items():
        for name in names:
            phases.wrap(owner, name, phase)


def stock(job, task, dataset, batch, phases):
    model = DistributedDataParallel(network(task, "cpu"), process_group=job._world.gradients)
    optimizer = task.optimizer(model)
    sampler = DistributedSampler(dataset, job.size, job.rank)
    loader = DataLoader(dataset, batch_size=batch // job.size, sampler=sampler, collate_fn=pool.default_collate)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for one in phases.over(iter(loader), "loader"):
            with phases.phase("forward"):
                loss = task.loss(model, one, "cpu")
            loss.backward()
            with phases.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            yield
        epoch += 1


def ours(task, dataset, batch, policy, phases, **options):
    job = isochron.Job(global_batch=batch, policy=policy, device="cpu", **options)
    model = network(task, "cpu")
    model, optimizer = job.prepare(model, task.optimizer(model))
    while True:
        for one in phases.over(iter(job.loader(dataset)), "protocol"):
            with phases.phase("forward"):
                loss = task.loss(model, one, "cpu")
            with phases.phase("protocol"):
                job.backward(loss)
            with phases.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            yield


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--turns", type=int, default=6, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    parser.add_argument("--task", choices=TASKS, default="cnn")
    parser.add_argument("--policy", default="uniform")
    parser.add_argument("--profile", action="store_true", help="print what torch's profiler finds, too")
    parser.add_argument("--python-profile", action="store_true", help="print what cProfile finds, too")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    phases, turns = Phases(), Turns()
    watch(phases)
    job = isochron.Job(global_batch=options.batch, device="cpu")  # makes the group
    task = TASKS[options.task]()
    dataset = task.dataset(options.batch * 50)
    loops = {
        "stock": stock(job, task, dataset, options.batch, phases),
        "isochron": ours(task, dataset, options.batch, options.policy, phases),
    }
    for turn in range(options.turns + 1):
        for name in sorted(loops, reverse=turn % 2 == 1):
            job.barrier()
            turns.run(name, phases, lambda name=name: next(loops[name]), options.steps)
    results = [json.loads(text) for text in job._world.gather_objects(json.dumps(turns.results))]
    if job.rank == 0:
        options.json.write_text(json.dumps({"workers": results}) + "\n")
    if options.profile:
        for name, loop in loops.items():
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                for _ in range(options.steps):
                    next(loop)
            if job.rank == 0:
                print(name, profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=18), flush=True)
            job.barrier()
    if options.python_profile:
        python_profile(loops["isochron"], options.steps, job.rank == 0)


def python_profile(loop, steps, shown):
    import cProfile
    import pstats

    profile = cProfile.Profile()
    profile.enable()
    for _ in range(steps):
        next(loop)
    profile.disable()
    if shown:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
