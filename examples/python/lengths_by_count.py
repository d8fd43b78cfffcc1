"""The language model of lengths_after.py, dealt by count: shares are numbers of sequences, whatever their length."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import isochron.torch as isochron
from data import Speeches


class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, vocab_size)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def pad(samples):
    x = pad_sequence([sample[:-1] for sample in samples], batch_first=True)
    y = pad_sequence([sample[1:] for sample in samples], batch_first=True, padding_value=-100)
    return x, y


torch.manual_seed(1)
dataset = Speeches(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
model = Model(dataset.vocab_size)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
job = isochron.Job(global_batch=32)
model, optimizer = job.prepare(model, optimizer)
loader = job.loader(dataset, collate_fn=pad)
for epoch in job.epochs(2):
    for x, y in loader:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
        job.backward(loss, count=(y != -100).sum())
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch} loss {loss.item():.4f}")
