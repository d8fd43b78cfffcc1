#!/usr/bin/env python3
"""What Isochron costs on equal workers: its loop against stock DDP's, in turns within one run.

    torchrun --nproc-per-node 2 benchmarks/python/overhead.py --json overhead.json

Both train the same network on the same pictures with equal shares. Turns alternate, and so does who goes first; the
first turn of each is thrown away. Steps should take 50 ms or more: raise --batch until they do. Besides wall time the
CPU time of rank 0 is compared, which other work on the machine disturbs less.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import isochron.torch as isochron


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip


def stock(dataset, batch):
    """A generator that makes a step whenever it is asked to."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch // dist.get_world_size(), sampler=sampler)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()
        epoch += 1


def ours(dataset, batch, policy):
    job = isochron.Job(global_batch=batch, policy=policy)
    model = network()
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = job.loader(dataset)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()


def timed(steps, count):
    dist.barrier()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(steps)
    cpu = time.process_time() - cpu
    dist.barrier()
    return (time.perf_counter() - start) / count, cpu / count


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
    parser.add_argument("--policy", default="uniform")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dataset = TensorDataset(torch.randn(options.batch * 50, 3, 32, 32), torch.randint(0, 10, (options.batch * 50,)))
    loops = {"ddp": stock(dataset, options.batch), "isochron": ours(dataset, options.batch, options.policy)}
    times = {name: [] for name in loops}
    cpu_times = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name in sorted(loops, reverse=turn % 2 == 1):
            seconds, cpu = timed(loops[name], options.steps)
            if turn > 0:
                times[name].append(seconds)
                cpu_times[name].append(cpu)
    result = {
        "step": compare(times),
        "cpu": compare(cpu_times),
        "turns": options.turns,
        "steps_per_turn": options.steps,
        "workers": dist.get_world_size(),
        "policy": options.policy,
    }
    if dist.get_rank() == 0:
        print(json.dumps(result, indent=1))
        if options.json:
            options.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
