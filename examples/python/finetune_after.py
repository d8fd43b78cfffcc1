"""Pre-training on one dataset and fine-tuning of the last layer on another, with checkpoints to go on from."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import isochron.torch as isochron
from data import Bars

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=6400)
parser.add_argument("--checkpoint", default="")
args = parser.parse_args()


class Shifted(Bars):
    """The same pictures with other labels."""

    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return picture, (label + 3) % 10


def train(stage, model, optimizer, loader, epochs):
    for epoch in epochs:
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print(f"{stage} epoch {epoch} loss {loss.item():.4f}")


torch.manual_seed(1)
body, head = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU()), nn.Linear(64, 10)
model = nn.Sequential(body, head)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job = isochron.Job(global_batch=64)
model, optimizer = job.prepare(model, optimizer)
pretraining = job.loader(DataLoader(Bars(args.samples), batch_size=64, shuffle=True))
finetuning = job.loader(DataLoader(Shifted(args.samples // 2, seed=7), batch_size=64, shuffle=True))
if os.path.exists(args.checkpoint):
    job.restore(args.checkpoint)
train("pretraining", model, optimizer, pretraining, pretraining.epochs(2))
optimizer.param_groups[0]["lr"] = 0.02
train("finetuning", model, optimizer, finetuning, finetuning.epochs(2))
if args.checkpoint:
    job.save(args.checkpoint)
