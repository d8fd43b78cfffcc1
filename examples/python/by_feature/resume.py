"""Save in the middle of an epoch, and go on from there: also with another number of workers."""

import pathlib
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, (x[:, 0] > 0).long())
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())


def train(steps, restore):
    model = nn.Linear(20, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    job = isochron.Job(global_batch=100)
    model, optimizer = job.prepare(model, optimizer)
    if restore:
        job.restore(folder / "resume.pt")  # only the first worker needs to see the file
    for _ in job.epochs(2):
        for inputs, target in job.loader(dataset):
            loss = nn.functional.cross_entropy(model(inputs), target)
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if job.step == steps:
                job.save(folder / "resume.pt")
                job.close()
                return None
    complete = job.ledger.complete
    job.close()
    return loss.item(), complete


train(steps=13, restore=False)
loss, complete = train(steps=None, restore=True)
print(f"loss {loss:.3f}; every sample used once: {complete}")
