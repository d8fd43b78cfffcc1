"""Training on a stream: lines of a text come one by one, and nobody knows how many there are."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import IterableDataset

import isochron.torch as isochron
from data import Blocks

lines = int(sys.argv[1]) if len(sys.argv) > 1 else 6400


class Lines(IterableDataset):
    """What a file, a socket or a queue would give."""

    def __init__(self, count):
        self.blocks = Blocks(count, 16)

    def __iter__(self):
        for number in range(len(self.blocks)):
            yield self.blocks[number]


class Net(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(vocab_size, 32), nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, vocab_size)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


torch.manual_seed(1)
stream = Lines(lines)
job = isochron.Job(global_batch=64)
loader = job.loader(stream, num_workers=1)  # each line is used once, by one of the workers
model = Net(stream.blocks.vocab_size)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model, optimizer = job.prepare(model, optimizer)
for epoch in range(2):
    for tokens, targets in loader:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        job.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch} loss {loss.item():.4f}")
