"""Where the batches of a job are: what the process of test_torch_habits.py does for it."""

import torch
from torch import nn

import isochron.torch as isochron
from loop_cells import BATCH, Points


def named_batch():
    job = isochron.Job(global_batch=BATCH)
    model = nn.Linear(2, 1).double()
    job.prepare(model)
    number, x, y = next(iter(job.loader(Points(), to_device=True)))
    device = x.device.type
    job._abandon()
    job._close_step()
    job.close()
    return device, len(number)


def moved():
    """Where batches are, for a job whose device is another one; and whether they were pinned."""
    job = isochron.Job(global_batch=BATCH)
    job.prepare(nn.Linear(2, 1).double())
    job.device = torch.device("meta")
    pinned, found = [], []
    there, pin = torch.cuda.is_available, torch.Tensor.pin_memory
    torch.cuda.is_available = lambda: True
    torch.Tensor.pin_memory = lambda self: (pinned.append(len(self)), self)[1]
    try:
        for options in ({}, {"to_device": True}, {"pin_memory": True}):
            batch = next(iter(job.loader(Points(), **options)))
            found.append(({one.device.type for one in batch}.pop(), len(pinned)))
            job._abandon()
            job._close_step()
    finally:
        torch.cuda.is_available, torch.Tensor.pin_memory = there, pin
    job.close()
    return found


def moved_by_prepare():
    """Where batches are by default: with the model if prepare() has moved it, else where the dataset has them."""
    found = []
    for before, options in (("cpu", {}), ("meta", {}), ("cpu", {"to_device": False})):
        job = isochron.Job(global_batch=BATCH)
        job.device = job.options.device = torch.device("meta")
        job.prepare(nn.Linear(2, 1, device=before).double())
        batch = next(iter(job.loader(Points(), **options)))
        found.append({one.device.type for one in batch}.pop())
        job._abandon()
        job._close_step()
        job.close()
    return found
