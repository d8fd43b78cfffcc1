"""What exact BatchNorm costs: statistics of the global batch take an exchange in every such layer. Measure it."""

import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 3, 16, 16)
dataset = TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())


def seconds_per_step(exact):
    torch.manual_seed(2)
    layers = [part for n in (3, 16, 16, 16) for part in (nn.Conv2d(n, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with isochron.Job(global_batch=100, sync_batch_norm=exact) as job:
        model, optimizer = job.prepare(model, optimizer)
        for inputs, target in job.loader(dataset):
            job.backward(nn.functional.cross_entropy(model(inputs), target))
            optimizer.step()
            optimizer.zero_grad()
            if job.step == 5:
                start = time.monotonic()  # the first steps are slower
        return (time.monotonic() - start) / 15


exact, own = seconds_per_step(True), seconds_per_step(False)
print(f"milliseconds a step: {1000 * exact:.1f} over the global batch, {1000 * own:.1f} over each worker's samples")
