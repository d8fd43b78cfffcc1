"""Gradient clipping: behind backward the gradient is that of the whole global batch, so its norm is the true one."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, 3.0 * x[:, :1])
model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

job = isochron.Job(global_batch=100)
model, optimizer = job.prepare(model, optimizer)
clipped = 0
for _ in job.epochs(3):
    for inputs, target in job.loader(dataset):
        loss = nn.functional.mse_loss(model(inputs), target)
        job.backward(loss)
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=4.0)  # the same on all workers
        clipped += int(norm > 4.0)
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.3f}, {clipped} of {job.step} steps clipped")
job.close()
