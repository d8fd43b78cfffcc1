"""Gradient accumulation: two batches to one step of the optimizer, the gradient is that of the mean over both."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, (x[:, 0] > 0).long())
model = nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

job = isochron.Job(global_batch=100)
model, optimizer = job.prepare(model, optimizer)
updates = 0
for _ in job.epochs(3):
    for inputs, target in job.loader(dataset):
        with job.accumulate(2) as last:
            loss = nn.functional.cross_entropy(model(inputs), target)
            job.backward(loss)
        if last:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
print(f"loss {loss.item():.3f} after {updates} updates")
job.close()
