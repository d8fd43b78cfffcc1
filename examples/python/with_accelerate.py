"""Accelerate on unequal workers: torchrun --nproc-per-node 2 with_accelerate.py

Accelerate wraps the model; the job gives the batches, and the weight that makes unequal ones exact.
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

import isochron.torch as isochron
from data import Bars

job = isochron.Job(global_batch=64)
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)  # not the loader: it would deal the samples again
job.prepare(model)
loader = job.loader(Bars(1280))
for _ in job.epochs(2):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss * job.weight)
        optimizer.step()
        optimizer.zero_grad()
print(f"steps {job.step} complete {job.ledger.complete} batches {job.batch_sizes}")
