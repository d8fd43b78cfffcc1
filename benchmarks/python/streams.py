#!/usr/bin/env python3
"""What a stream costs each worker that trains on it: an IterableDataset, of which each reads all, and Shards, of which
each reads its own. Processor time, that of loader processes included, so that other work on the machine hardly matters.

    PYTHONPATH=python python -m isochron.launch -n 2 benchmarks/python/streams.py stream
    PYTHONPATH=python python -m isochron.launch -n 2 benchmarks/python/streams.py stream --num-workers 2
    PYTHONPATH=python python -m isochron.launch -n 2 benchmarks/python/streams.py shards
"""

import argparse
import resource
import time

import torch
from torch import nn
from torch.utils.data import IterableDataset

import isochron.torch as isochron


def read(first, last, seconds):
    """Samples that take so much processor time each."""
    for number in range(first, last):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        yield torch.full((4,), float(number))


class Stream(IterableDataset):
    def __init__(self, options):
        self._options = options

    def __iter__(self):
        return read(0, self._options.samples, self._options.milliseconds / 1000)


def shards(options):
    size = options.samples // options.parts
    return isochron.Shards(
        range(options.parts), lambda part: read(part * size, (part + 1) * size, options.milliseconds / 1000)
    )


def processor_seconds():
    """This process and its loader processes that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def train(dataset, policy, processes):
    """Processor seconds of each worker, and its samples."""
    job = isochron.Job(global_batch=48, policy=policy)
    model = nn.Linear(4, 1)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-9))
    used = 0
    before = processor_seconds()
    for x in job.loader(dataset, num_workers=processes):
        used += len(x)
        job.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    seconds = processor_seconds() - before
    told = job.sum([seconds if rank == job.rank else 0.0 for rank in range(job.size)])
    counts = job.sum([float(used) if rank == job.rank else 0.0 for rank in range(job.size)])
    is_first = job.is_first
    job.close()
    return told, counts, is_first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("stream", "shards"))
    parser.add_argument("--samples", type=int, default=4800)
    parser.add_argument("--milliseconds", type=float, default=0.1, help="processor time of a sample")
    parser.add_argument("--parts", type=int, default=48)
    parser.add_argument("--num-workers", type=int, default=0, help="loader processes of each worker")
    parser.add_argument("--policy", default="static:weights=3/1")
    options = parser.parse_args()
    dataset = Stream(options) if options.kind == "stream" else shards(options)
    seconds, counts, is_first = train(dataset, options.policy, options.num_workers)
    if is_first:
        each = ", ".join(f"{one:.2f} s for {count:.0f} samples" for one, count in zip(seconds, counts, strict=True))
        print(f"{options.kind}: {each}", flush=True)


if __name__ == "__main__":
    main()
