"""Leaving a loop early: an epoch ends with its samples, unless the job is told that the rest is not wanted."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, (x[:, 0] > 0).long())
model = nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

job = isochron.Job(global_batch=100)
model, optimizer = job.prepare(model, optimizer)
for _ in job.epochs(2):
    for inputs, target in job.loader(dataset):
        job.backward(nn.functional.cross_entropy(model(inputs), target))
        optimizer.step()
        optimizer.zero_grad()
        if job.step % 8 == 7:  # a condition that is the same on all workers
            job.end_epoch()
            break
steps = job.step
for inputs, target in job.loader(dataset, max_steps=4):  # the same for a number that is known
    loss = nn.functional.cross_entropy(model(inputs), target)
    job.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f} after {steps} and {job.step - steps} steps, epoch {job.epoch}")
job.close()
