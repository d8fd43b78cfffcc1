"""Accelerate, as its quick tour says; unequal batches come from a loader of the user's own."""

import torch_task
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train(run):
    task = torch_task.Task(run)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(task.model, task.optimizer(task.model.parameters()))
    if run.shares:
        loader = task.loader()
    else:
        loader = DataLoader(task.dataset, batch_size=run.batch // run.size, shuffle=True, drop_last=True)
        loader = accelerator.prepare(loader)
    epoch = 0
    while True:
        for x, y, ids in loader:
            accelerator.backward(task.loss(model, x, y))
            optimizer.step()
            optimizer.zero_grad()
            if run.done(ids, epoch, parameters=task.parameters()):
                return
        epoch += 1
