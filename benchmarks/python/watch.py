#!/usr/bin/env python3
"""One worker of a check: what `watch` foretells of a stock DDP loop, and a job says of itself, against what is true.

    build/isochron launch --cluster hl8 -- .venv/bin/python benchmarks/python/watch.py --json watch.json
    .venv/bin/python -m isochron.launch -n 4 benchmarks/python/watch.py --sleep 5.3,5.3,8,1 --fixed 20

The stock loop is watched first; then it and a job take turns, the first of which does not count, so that whatever else
the machine does meets both. The first worker prints the forecast, the job's own estimate after its last turn, and the
true ratio of speeds: the median over turns, with the turns it is the median of. With --sleep workers compute next to
nothing, and are slow by sleeping in the model, so many milliseconds a sample, and --fixed (times that) a step: on a
machine that has other things to do, that is steadier than CPU quotas.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import torch
from loops import network, timed
from tasks import TASKS
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import isochron.torch as isochron


class Sleeper(torch.nn.Module):
    """Takes the time of a slow machine without needing one."""

    def __init__(self, fixed, per_sample):
        super().__init__()
        self._fixed, self._per_sample = fixed, per_sample

    def forward(self, x):
        time.sleep(self._fixed + self._per_sample * len(x))
        return x


class SleepingTask(TASKS["cnn"]):
    def __init__(self, fixed, per_sample):
        self._slowness = fixed, per_sample

    def dataset(self, count):
        return TensorDataset(torch.randn(count, 8), torch.randint(0, 10, (count,)))

    def network(self):
        return torch.nn.Sequential(torch.nn.Linear(8, 10), Sleeper(*self._slowness))


def stock(job, task, dataset, batch, model, optimizer):
    """As people write it, but that it makes a step whenever it is asked to."""
    sampler = DistributedSampler(dataset, job.size, job.rank)
    loader = DataLoader(dataset, batch_size=batch // job.size, sampler=sampler)
    while True:
        for one in loader:
            task.loss(model, one, "cpu").backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def ours(job, task, dataset):
    model = network(task, "cpu")
    model, optimizer = job.prepare(model, task.optimizer(model))
    loader = job.loader(dataset)
    while True:
        for one in loader:
            job.backward(task.loss(model, one, "cpu"))
            optimizer.step()
            optimizer.zero_grad()
            yield


def claim_processor():
    """Before what else runs on this machine, as far as a control group of version 1 is there and permits it."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        shares = pathlib.Path("/sys/fs/cgroup/cpu" + path) / "cpu.shares"
        if "cpu" in controllers.split(",") and path != "/" and os.access(shares, os.W_OK):
            shares.write_text("200000")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256, help="of all workers together")
    parser.add_argument("--turns", type=int, default=4, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=15, help="of a turn")
    parser.add_argument("--sleep", help="milliseconds a sample, by rank, with commas between; in place of the network")
    parser.add_argument("--fixed", type=float, default=0.0, help="the same for a step, in samples")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    claim_processor()
    torch.set_num_threads(1)
    job = isochron.Job(global_batch=options.batch, device="cpu")  # makes the group that the launcher says
    task = TASKS["cnn"]()
    if options.sleep:
        each = float(options.sleep.split(",")[job.rank]) / 1000.0
        task = SleepingTask(options.fixed * each, each)
    dataset = task.dataset(options.batch * 40)
    model = DistributedDataParallel(network(task, "cpu"))
    optimizer = task.optimizer(model)
    loops = {"ddp": stock(job, task, dataset, options.batch, model, optimizer), "isochron": ours(job, task, dataset)}
    folder = tempfile.mkdtemp()
    watch = isochron.watch(model, optimizer, log=pathlib.Path(folder) / "watch.jsonl")
    for _ in range(36):
        next(loops["ddp"])
    own, ratios = [], []
    for turn in range(options.turns + 1):
        rates = {name: options.batch / timed(job, loop, options.steps)[0] for name, loop in loops.items()}
        if turn > 0:
            ratios.append(rates["isochron"] / rates["ddp"])
            own.append(job.summary().over_equal_shares)
    if job.rank > 0:
        return
    true = statistics.median(ratios)
    result = {"foretold": watch.gain, "own": own[-1], "true": true, "turns": ratios, "own_by_turn": own}
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"foretold {watch.gain:.2f}, own estimate {own[-1]:.2f}, true {true:.2f} ({spread})")
    if options.json:
        options.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
