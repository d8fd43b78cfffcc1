"""Training loops that go on whenever they are asked to: what the benchmarks take turns with."""

import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import isochron.torch as isochron


def network(task, device):
    torch.manual_seed(0)
    return task.network().to(device)


def plain_epoch(task, model, optimizer, loader, device):
    for one in loader:
        loss = task.loss(model, one, device)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def stock(job, task, dataset, batch, device="cpu"):
    """A generator that makes a step whenever it is asked to; its gradients go the way of the job's."""
    model = DistributedDataParallel(network(task, device), process_group=job._world.gradients)
    optimizer = task.optimizer(model)
    sampler = DistributedSampler(dataset, job.size, job.rank)
    loader = DataLoader(dataset, batch_size=batch // job.size, sampler=sampler)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from plain_epoch(task, model, optimizer, loader, device)
        epoch += 1


def by_itself(job, task, dataset, batch, device="cpu"):
    """The first worker with the whole batch and nobody to wait for, while the others do nothing."""
    if job.rank > 0:
        while True:
            yield 0.0
    model = network(task, device)
    optimizer = task.optimizer(model)
    loader = DataLoader(dataset, batch_size=batch, shuffle=True)
    while True:
        yield from plain_epoch(task, model, optimizer, loader, device)


def ours(task, dataset, batch, policy, device="cpu", on_nonfinite="stop", **options):
    job = isochron.Job(global_batch=batch, policy=policy, device=device, on_nonfinite=on_nonfinite, **options)
    model = network(task, device)
    model, optimizer = job.prepare(model, task.optimizer(model))
    loader = job.loader(dataset)
    while True:
        for one in loader:
            loss = task.loss(model, one, device)
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            value = loss.item()
            if job.options.sync == "local":
                job.finish_step()  # a round ends within its turn
            yield value


def timed(job, steps, count):
    """Seconds of a step, and of the processor for it."""
    job.barrier()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(steps)
    cpu = time.process_time() - cpu
    job.barrier()
    return (time.perf_counter() - start) / count, cpu / count
