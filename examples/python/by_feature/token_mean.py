"""Batches of unequal length: a mean over tokens, exact though every worker has another number of them."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import isochron.torch as isochron

IGNORED = -100
torch.manual_seed(1)
texts = [torch.arange(start, start + length) % 12 for start, length in zip(range(600), torch.randint(2, 30, (600,)))]


def collate(samples):
    """Each sample is a text; the target of a token is the next one."""
    inputs = pad_sequence([text[:-1] for text in samples], batch_first=True)
    return inputs, pad_sequence([text[1:] for text in samples], batch_first=True, padding_value=IGNORED)


model = nn.Sequential(nn.Embedding(12, 24), nn.Linear(24, 12))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
job = isochron.Job(global_batch=40)
model, optimizer = job.prepare(model, optimizer)
for _ in job.epochs(3):
    for inputs, target in job.loader(texts, collate_fn=collate):
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), target.flatten(), ignore_index=IGNORED)
        job.backward(loss, count=int((target != IGNORED).sum()))  # of how many tokens this is the mean
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
job.close()
