"""What the ranks of the tests of jobs with two sides do, with gloo in place of NCCL; torch_cases.py hands these on."""

import collections
import contextlib
import os
import signal

import torch
import torch.distributed as dist

import isochron.torch as isochron
import torch_models as models
from isochron.torch import world as worlds
from isochron.torch.sides import SidedAverage
from torch_failure_cases import survive


@contextlib.contextmanager
def told_sides(names):
    """Every rank is on the side that its letter says."""
    before = worlds.sides_of
    worlds.sides_of = lambda gpus, by_nccl: list(names)
    try:
        yield
    finally:
        worlds.sides_of = before


@contextlib.contextmanager
def counted_exchanges(counts):
    """Sums of more than a few numbers, by the size of their group."""
    before = dist.all_reduce

    def counting(tensor, *arguments, group=None, **options):
        if tensor.numel() > 60:  # more than BatchNorm has
            counts[dist.get_world_size(group)] += 1
        return before(tensor, *arguments, group=group, **options)

    dist.all_reduce = counting
    try:
        yield
    finally:
        dist.all_reduce = before


def sided(sides, steps=10, accumulate=1, jobs=1):
    """Trains with sides of the job; how far that ends from one process, and in groups of how many sums were made."""
    import torch_cases

    counts = collections.Counter()
    dataset = models.Images(size=24 * steps)
    with told_sides(sides), counted_exchanges(counts):
        for _ in range(jobs):  # the groups of a later one have names that all of its members agree on
            job = isochron.Job(global_batch=24, policy="static", weight=1.0 + dist.get_rank(), reseed=False,
                               ddp={"bucket_cap_mb": 0.002})  # fmt: skip
            model = models.make("cnn")
            model, optimizer = job.prepare(model, torch_cases.optimizer_of(model))
            for x, y in job.loader(dataset):
                with job.accumulate(accumulate) as last:
                    job.backward(models.loss_of(model(x), y))
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            mine = torch_cases.flat(model)
            job.close()
    alone = torch_cases.train_alone("cnn", steps, 24, torch.float64, dataset=dataset, accumulate=accumulate)
    return {"far": (mine - alone).abs().max().item(), "counts": dict(counts)}


def survive_on_sides(sides, how, victim, when, **arguments):
    """`how` is "hook": it is killed when its first gradients are there."""
    before, passes = SidedAverage.hook, 0

    def hook(average, bucket):
        nonlocal passes
        passes += bucket.index() == 0
        if how == "hook" and dist.get_rank() == victim and passes > when:
            os.kill(os.getpid(), signal.SIGKILL)
        return before(average, bucket)

    SidedAverage.hook = hook
    try:
        with told_sides(sides):
            return survive(how=how, victim=victim, when=when, **arguments)
    finally:
        SidedAverage.hook = before
