"""Several losses in one step: each may have a backward pass of its own, and gradients add up."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, (x[:, 0] > 0).long())
model = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

job = isochron.Job(global_batch=100)
model, optimizer = job.prepare(model, optimizer)
for _ in job.epochs(3):
    for inputs, target in job.loader(dataset):
        error = nn.functional.cross_entropy(model(inputs), target)
        job.backward(error)
        smoothness = (model(inputs + 0.01) - model(inputs)).square().mean()
        job.backward(0.1 * smoothness)  # the log's loss is the sum of both
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {error.item():.3f}, and of the last finished step on all workers {job.last_step.loss:.3f}")
job.close()
