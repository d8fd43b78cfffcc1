#!/usr/bin/env python3
"""One worker of a comparison on samples of unequal length, in turns.

Stock DDP, isochron by count, lengths balanced as if the workers were equal, and isochron by cost:

    build/isochron launch --cluster hl8 -- .venv/bin/python benchmarks/python/lengths.py --collate padded

Packed: a small GPT whose attention stays within a sequence. Padded: a small encoder that classifies. Lengths are
log-normal (median 60, sigma 0.8, 8 to 512 tokens). The first turn, in which policies learn, does not count. The first
worker prints medians over the turns; --json FILE writes them.
"""

import argparse
import json
import pathlib
import statistics

import torch
from loops import timed
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import isochron.torch as isochron

VOCABULARY, WIDTH, HEADS, LAYERS = 64, 128, 4, 2


class Sequences(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(1)
        lengths = torch.exp(4.1 + 0.8 * torch.randn(size, generator=generator)).round().clamp(8, 512)
        self.lengths = [int(length) for length in lengths]
        self.tokens = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in self.lengths]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.split, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, attend):
        q, k, v = self.split(self.before(x)).chunk(3, -1)
        x = x + self.join(attend(q, k, v))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Network(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, outputs)

    def states(self, tokens, attend):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, attend)
        return x


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(-2, -3)


class Packed(Network):
    def forward(self, tokens, lengths):
        def attend(q, k, v):
            parts = zip(*(one.split(lengths) for one in (q, k, v)), strict=True)
            each = [functional.scaled_dot_product_attention(*map(heads, part), is_causal=True) for part in parts]
            return torch.cat([one.transpose(-2, -3).flatten(-2) for one in each])

        return self.head(self.states(tokens, attend))


class Padded(Network):
    def forward(self, tokens, counts):
        def attend(q, k, v):
            mixed = functional.scaled_dot_product_attention(*map(heads, (q, k, v)), attn_mask=counts[:, None, None])
            return mixed.transpose(-2, -3).flatten(-2)

        x = self.states(tokens, attend) * counts[..., None]
        return self.head(x.sum(1) / counts.sum(1, keepdim=True))


def packed(samples):
    return torch.cat(samples), [len(one) for one in samples]


def padded(samples):
    tokens = nn.utils.rnn.pad_sequence(samples, batch_first=True)
    return tokens, torch.arange(tokens.shape[1])[None] < torch.tensor([len(one) for one in samples])[:, None]


def loss_of(model, batch):
    tokens, shape = batch
    output = model(tokens, shape)
    if isinstance(shape, list):
        return functional.cross_entropy(output[:-1], tokens[1:])
    return functional.cross_entropy(output, tokens[:, 0] % 8)


def new(collate):
    torch.manual_seed(0)
    return Packed(VOCABULARY) if collate == "packed" else Padded(8)


def stock(job, dataset, batch, collate):
    model = DistributedDataParallel(new(collate), process_group=job._world.gradients)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(dataset, job.size, job.rank)
    function = packed if collate == "packed" else padded
    loader = DataLoader(dataset, batch_size=batch // job.size, sampler=sampler, collate_fn=function, drop_last=True)
    while True:
        for one in loader:
            loss_of(model, one).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def ours(dataset, batch, collate, policy, by_cost):
    job = isochron.Job(global_batch=batch, policy=policy, last_batch="drop")
    model = new(collate)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    said = {"lengths": dataset.lengths, "collate": collate, "cost": f"attention:width={WIDTH}"} if by_cost else {}
    loader = job.loader(dataset, collate_fn=packed if collate == "packed" else padded, **said)
    while True:
        for one in loader:
            job.backward(loss_of(model, one))
            optimizer.step()
            optimizer.zero_grad()
            yield


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="of all workers together")
    parser.add_argument("--collate", choices=("packed", "padded"), default="packed")
    parser.add_argument("--turns", type=int, default=3, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--first-steps", type=int, default=20, help="of the turn that does not count")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Sequences(options.batch * 50)
    kind = {"dataset": dataset, "batch": options.batch, "collate": options.collate}
    job = isochron.Job(global_batch=options.batch)  # makes the group that the launcher says
    loops = {
        "ddp": stock(job, **kind),
        "isochron by count": ours(policy="isochron", by_cost=False, **kind),
        "lengths as if equal": ours(policy="uniform", by_cost=True, **kind),
        "isochron by cost": ours(policy="isochron", by_cost=True, **kind),
    }
    rates = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name, loop in loops.items():
            seconds, _ = timed(job, loop, options.first_steps if turn == 0 else options.steps)
            rates[name].append(options.batch / seconds)
    if job.rank > 0:
        return
    tokens = sum(dataset.lengths) / len(dataset)
    results = []
    for name, (_, *mine) in rates.items():
        over = [one / base for one, base in zip(mine, rates["isochron by count"][1:], strict=True)]
        rate = statistics.median(mine)
        results.append({"name": name, "samples_per_second": rate, "tokens_per_second": rate * tokens,
                        "over_by_count": statistics.median(over)})  # fmt: skip
        told = f"{rate:7.1f} samples/s, {rate * tokens:8.0f} tokens/s, {statistics.median(over):.2f} x by count"
        print(f"{name:>20}: {told}")
    if options.json:
        options.json.write_text(json.dumps({"collate": options.collate, "results": results}) + "\n")


if __name__ == "__main__":
    main()
