"""Evaluation shared by the workers: each takes as large a part of the test samples as it has of a batch, so that all
finish together, and the sums are those of all."""

import itertools

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(3000, 20)
y = (x[:, 0] > 0).long()
dataset, tests = TensorDataset(x[:2000], y[:2000]), TensorDataset(x[2000:], y[2000:])
model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

job = isochron.Job(global_batch=100)
model, optimizer = job.prepare(model, optimizer)
for epoch in job.epochs(3):
    for inputs, target in job.loader(dataset):
        job.backward(nn.functional.cross_entropy(model(inputs), target))
        optimizer.step()
        optimizer.zero_grad()
    sizes = job.batch_sizes  # ask here: the split changes, and workers may be lost
    ends = [len(tests) * part // sum(sizes) for part in itertools.accumulate(sizes, initial=0)]
    mine = slice(ends[job.rank], ends[job.rank + 1])
    inputs, target = (tensor[mine].to(job.device) for tensor in tests.tensors)
    with torch.no_grad():
        output = job.unwrap(model)(inputs)  # unwrapped: DDP would wait for the others
    loss = nn.functional.cross_entropy(output, target, reduction="sum").item()
    right = (output.argmax(1) == target).sum().item()
    loss, right, count = job.sum([loss, right, len(target)])
    job.note_evaluation(loss=loss / count, accuracy=right / count)  # into log, page and TensorBoard
print(f"accuracy {right / count:.3f} of {count:.0f} samples")
job.close()
