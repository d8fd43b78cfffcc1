"""Examples whose runs can be compared: before and after on one worker and on several."""

import contextlib
import os
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Sampler

import isochron.torch as isochron
from isochron import _core
from torch_feature_cases import example

RANDN = torch.randn


class JobsOrder(Sampler):
    """Every epoch in the order that a job has by default."""

    def __init__(self, dataset):
        self.order, self.epoch = _core.Sampler(len(dataset), 1, 0), 0

    def __len__(self):
        return self.order.samples_per_epoch

    def __iter__(self):
        self.order.seek(self.epoch, 0)
        self.epoch += 1
        return iter(self.order.samples(0, len(self)))

    def set_epoch(self, epoch):
        self.epoch = epoch


def in_order(dataset, shuffle=False, **options):
    return DataLoader(dataset, **options, **({"sampler": JobsOrder(dataset)} if shuffle else {}))


def alike(*shape, generator=None):
    """Noise that depends neither on the worker nor on the sample; data, which have a generator, are as ever."""
    if generator is not None:
        return RANDN(*shape, generator=generator)
    return torch.linspace(-1.0, 1.0, shape[-1]).expand(shape)


@contextlib.contextmanager
def comparable(job):
    """Double precision, nothing dropped, noise that is alike, without a job the order of one and with it shares of 3
    to 1. Yields what the optimizers and jobs are noted in."""
    made = {torch.optim.Optimizer: [], isochron.Job: []}
    more = {torch.optim.Optimizer: {}, isochron.Job: {"policy": "static:weights=3/1"}}
    patches = [mock.patch.object(kind, "__init__", noting(kind, made[kind], more[kind])) for kind in made]
    patches += [mock.patch.object(nn.Dropout, "forward", lambda self, x: x), mock.patch.object(torch, "randn", alike)]
    if not job:
        patches += [mock.patch("torch.utils.data.DataLoader", in_order),
                    mock.patch("torch.utils.data.distributed.DistributedSampler", JobsOrder)]  # fmt: skip
    torch.set_default_dtype(torch.float64)
    try:
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield made
    finally:
        torch.set_default_dtype(torch.float32)


def noting(kind, those, more):
    begin = kind.__init__

    def begin_noted(self, *arguments, **options):
        those.append(self)
        begin(self, *arguments, **more, **options)

    return begin_noted


def trained(path, arguments):
    """The parameters of all optimizers of a script, and whether the last epoch of each dataset of its jobs used every
    sample once, in shares that differ."""
    with comparable(job=path.endswith("_after.py")) as made:
        example(path, arguments)
    parameters = [one for each in made[torch.optim.Optimizer] for group in each.param_groups for one in group["params"]]
    weights = torch.cat([one.detach().flatten() for one in parameters]).tolist()
    jobs = made[isochron.Job]
    whole = [job._ledger_of(data).complete for job in jobs for data in job._datasets]
    for job in jobs:
        assert sorted(job.batch_sizes)[0] < job.options.global_batch / 3
        job.close()
    return {"weights": weights, "whole": whole}


def trained_in_a_group(path, arguments):
    """A script that needs a process group: one of a single process."""
    there = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with mock.patch.dict(os.environ, there):
        try:
            return trained(path, arguments)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
