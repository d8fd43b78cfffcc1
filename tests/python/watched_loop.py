"""A training loop as people write it, on workers of which the second takes four times as long for a sample.

"ddp", "fsdp" and "accelerate" know nothing of Isochron; "both" watches the loop and then makes a job of
it, to see what it gains.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 16
STEPS = 12  # three and the one in which the watch begins do not count


class Slow(nn.Module):
    """Linear, and as slow as its machine."""

    def __init__(self, per_sample):
        super().__init__()
        self._per_sample = per_sample
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def forward(self, x):
        time.sleep(self._per_sample * len(x))
        return self.layers(x)


def network(rank):
    torch.manual_seed(0)
    return Slow(0.04 if rank == 1 else 0.01)


def train(model, optimizer, rank, steps, backward=torch.Tensor.backward):
    torch.manual_seed(rank)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        x = torch.randn(BATCH, 4)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach())  # as people do for their logs: it waits for the slowest
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[-8:])


def train_job(job):
    model = network(job.rank)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    x = torch.randn(14 * 2 * BATCH, 4)
    ends = []
    for inputs, targets in job.loader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))):
        job.backward(nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
    return statistics.median(b - a for a, b in zip(ends[-9:], ends[-8:]))


def train_accelerated():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    model = network(rank)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    train(model, optimizer, rank, STEPS, accelerator.backward)
    accelerator.end_training()


def main(kind):
    torch.set_num_threads(1)
    if kind == "accelerate":
        return train_accelerated()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = network(rank)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(nn.Sequential(model))
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if kind == "both":
        import isochron.torch as isochron

        watch = isochron.watch(model, optimizer, steps=8)
        equal = train(model, optimizer, rank, STEPS)
        job = isochron.Job(global_batch=2 * BATCH)
        seconds = train_job(job)
        if rank == 0:
            print("gains", watch.gain, job.summary().over_equal_shares, equal / seconds)
    else:
        train(model, optimizer, rank, STEPS)
    if kind == "ddp":
        total = sum(parameter.double().sum().item() for parameter in model.parameters())
        sys.stdout.write(f"weights {total}\n")  # in one call, since both workers write
    dist.destroy_process_group()


main(sys.argv[1])
