"""A learning-rate schedule: given to prepare it is saved with the job. It counts steps of the global batch, as always,
and not those that have to be repeated, for which backward returns False."""

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
loader = job.loader(dataset)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(loader))  # len: steps of an epoch
model, optimizer, schedule = job.prepare(model, optimizer, schedule)
for _ in job.epochs(3):
    for inputs, target in loader:
        loss = nn.functional.cross_entropy(model(inputs), target)
        if job.backward(loss):
            optimizer.step()
            schedule.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.3f}, learning rate {schedule.get_last_lr()[0]:.4f} after {job.step} steps")
job.close()
