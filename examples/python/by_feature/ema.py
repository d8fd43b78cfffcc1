"""An exponential moving average of the weights (EMA), which is what gets evaluated."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, (x[:, 0] > 0).long())
model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

job = isochron.Job(global_batch=100)
model, average, optimizer = job.prepare(model, average, optimizer)  # the average comes back as it is, and is saved
for _ in job.epochs(3):
    for inputs, target in job.loader(dataset):
        job.backward(nn.functional.cross_entropy(model(inputs), target))
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(job.unwrap(model))  # equal on all workers, since the weights are
with torch.no_grad():
    x, y = (tensor.to(job.device) for tensor in dataset.tensors)
    accuracy = (average(x).argmax(1) == y).float().mean().item()
print(f"accuracy of the average {accuracy:.3f}")
job.close()
