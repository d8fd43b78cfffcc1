"""Training loops that go on whenever they are asked to: what the benchmarks take turns with."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import isochron.torch as isochron


def pictures(count):
    return TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,)))


def network(device="cpu", large=False):
    """A small one for emulated CPUs; the large one keeps a GPU busy: 3 million parameters, 18 GFLOP a sample."""
    torch.manual_seed(0)
    if large:
        layers = [nn.Conv2d(3, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU()]
        for _ in range(5):
            layers += [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)]
        return nn.Sequential(*layers).to(device)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 10),
    ).to(device)  # fmt: skip


def stock(dataset, batch, device="cpu", large=False):
    """A generator that makes a step whenever it is asked to."""
    model = DistributedDataParallel(network(device, large))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch // dist.get_world_size(), sampler=sampler)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()
        epoch += 1


def ours(dataset, batch, policy, device="cpu", large=False):
    job = isochron.Job(global_batch=batch, policy=policy, device=device)
    model = network(device, large)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = job.loader(dataset)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()


def timed(steps, count):
    """Seconds of a step, and of the processor for it."""
    dist.barrier()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(steps)
    cpu = time.process_time() - cpu
    dist.barrier()
    return (time.perf_counter() - start) / count, cpu / count
