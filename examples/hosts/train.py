"""What jobset.yaml and pytorchjob.yaml start in every pod, as python train.py CHECKPOINT: it saves after every epoch
and, started again, goes on from there. Only the first worker needs to see the file (docs/hosts.md)."""

import os
import pathlib
import sys

import torch

import isochron.torch as isochron

checkpoint = pathlib.Path(sys.argv[1])
torch.manual_seed(1)
dataset = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = isochron.Job(global_batch=32)
model, optimizer = job.prepare(model, optimizer)
if any(job.sum([job.is_first and checkpoint.exists()])):  # all workers have to know
    job.restore(checkpoint)
began = job.step
for _ in job.epochs(4):
    for x, y in job.loader(dataset):
        job.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    job.save(checkpoint)
print("rank", job.rank, "of", job.size, os.uname().nodename, "from step", began, "to", job.step, flush=True)
job.close()
