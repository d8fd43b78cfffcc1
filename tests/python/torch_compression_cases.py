"""What the ranks of the tests of compressed gradients do; torch_cases.py hands these on."""

import contextlib
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

import isochron.torch as isochron
import torch_models as models
from isochron.torch.compression import Int8Average
from isochron.torch.stopwatch import Waits

SMALL = 0.003  # of a gradient whose largest number is 1: less than half of 1 / 127, so that it is rounded to 0


class Ones(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.ones(1, dtype=torch.float64)


class Constant(nn.Module):
    """Its gradient is the same in every step: one large number, and small ones."""

    def __init__(self, size=300):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self.more = nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self.register_buffer("gradient", torch.full((size,), SMALL, dtype=torch.float64))
        self.gradient[0] = 1.0

    def forward(self, x):
        return (self.weight @ self.gradient + 2 * self.more @ self.gradient) * x


def weights_of(model):
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def small_gradients(compression="int8", steps=12, victim=None, restarts=False, spoil=None, folder=None):
    """Where SGD with a rate of 1 ends, against what it should have done; perhaps with a worker that is lost, a
    checkpoint after every step, or a step that is not finite."""
    done, path = 0, f"{folder}/job.pt"
    while done < steps:
        job = isochron.Job(global_batch=12, policy="static", weight=1.0 + dist.get_rank(), compression=compression,
                           on_nonfinite="stop" if spoil is None else "skip")  # fmt: skip
        model = Constant()
        model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
        if done > 0:
            job.restore(path)
        for x in job.loader(Ones(12 * steps)):
            if job.step == 6 and dist.get_rank() == victim:
                model(x)
                os.kill(os.getpid(), signal.SIGKILL)
            loss = model(x).mean()
            job.backward(loss * float("nan") if job.step == spoil and job.rank == 1 else loss)
            optimizer.step()
            optimizer.zero_grad()
            job.finish_step()
            done = steps if job.epoch > 0 else job.step
            if restarts:
                break
        if restarts:
            job.save(path)
        with contextlib.suppress(Exception):
            job.close()
    mine, plain = weights_of(model), Constant().gradient
    taken = steps - (spoil is not None)
    return {"far": (mine + taken * torch.cat((plain, 2 * plain))).abs().max().item(), "sum": mine.sum().item()}


def changed_members():
    """What two of three workers owe together before the third leaves, and after."""
    pair = dist.new_group([0, 1])
    average = Int8Average(dist.group.WORLD, Waits(torch.device("cpu")))
    generator = torch.Generator().manual_seed(dist.get_rank())
    average._size = 700
    for _ in range(3):
        average._average(torch.randn(700, generator=generator, dtype=torch.float64))
    if dist.get_rank() == 2:
        return None
    owed = average._error / 3
    dist.all_reduce(owed, group=pair)
    average.follow(pair)
    average.gather()
    return {"owed": owed.abs().max().item(), "off": (average.state_dict()["error"] - owed).abs().max().item()}


def overflow(spoil=4, steps=12):
    """A GradScaler leaves out a step in which one worker's gradient is infinite; all others count."""
    job = isochron.Job(global_batch=12, policy="static", weight=1.0 + dist.get_rank(), compression="int8")
    model = Constant()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    for x in job.loader(Ones(12 * steps)):
        loss = model(x).mean()
        job.backward(loss * float("inf") if job.step == spoil and job.rank == 1 else loss, scaler=scaler)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    job.close()
    mine, plain = weights_of(model), Constant().gradient
    far = (mine + (steps - 1) * torch.cat((plain, 2 * plain))).abs().max().item()
    return {"far": far, "scale": scaler.get_scale(), "sum": mine.sum().item()}


def compressed(compression, even=False, weighting="exact", steps=12):
    """A network that is trained with compressed gradients, and the same without."""
    ends = []
    for kind in ("none", compression):
        job = isochron.Job(global_batch=24, policy="static", weight=1.0 if even else 1.0 + dist.get_rank(),
                           compression=kind, weighting=weighting, reseed=False)  # fmt: skip
        model = models.make("gpt2")
        start = weights_of(model)
        model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        for x, y in job.loader(models.Text(size=24 * steps)):
            job.backward(models.loss_of(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        job.close()
        ends.append(weights_of(model))
    exact, short = ends
    return {"far": ((short - exact).norm() / (exact - start).norm()).item(), "sum": short.sum().item()}
