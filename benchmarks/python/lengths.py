#!/usr/bin/env python3
"""One worker of a comparison on samples of unequal length, in turns.

Stock DDP, isochron by count, lengths balanced as if the workers were equal, and isochron by cost:

    build/isochron launch --cluster hl8 -- .venv/bin/python benchmarks/python/lengths.py --collate padded

Packed: a small GPT whose attention stays within a sequence. Padded: a small encoder that classifies. The text is
Shakespeare's speeches, as `make data` brings them, a token a byte, cut to at most 512; or `--text lognormal`, made up
(median 60, sigma 0.8, 8 to 512 tokens). The first turn, in which policies learn, does not count. The first worker
prints medians over the turns; --json FILE has them after every turn, so that a run may be cut off.
benchmarks/lengths.py runs this on several clusters.
"""

import argparse
import itertools
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

VOCABULARY, WIDTH, HEADS, LAYERS = 256, 128, 4, 2
LONGEST = 512
ROOT = pathlib.Path(__file__).resolve().parents[2]


def made_up(size):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.exp(4.1 + 0.8 * torch.randn(size, generator=generator)).round().clamp(8, LONGEST)
    return [torch.randint(0, VOCABULARY, (int(length),), generator=generator) for length in lengths]


def speeches(folder):
    """Those of the training text, in its order."""
    text = torch.frombuffer(bytearray((folder / "train.bin").read_bytes()), dtype=torch.int16).long()
    starts = torch.frombuffer(bytearray((folder / "train.starts").read_bytes()), dtype=torch.int64).tolist()
    return [text[first : min(last, first + LONGEST)] for first, last in itertools.pairwise([*starts, len(text)])]


class Sequences(Dataset):
    def __init__(self, tokens):
        self.tokens = tokens
        self.lengths = [len(one) for one in tokens]

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


def groups_of(lengths):
    """Sequences of like length, filled up to the longest of them, since a loop over all would cost most of the time:
    for every group which token is where, and for every token where it is among the results. Nobody looks behind the end
    of a sequence, where it is filled up, since attention is causal."""
    lengths = torch.tensor(lengths)
    starts = lengths.cumsum(0) - lengths
    order = lengths.argsort(descending=True, stable=True).tolist()
    groups, places, offset, at = [], torch.empty(int(lengths.sum()), dtype=torch.long), 0, 0
    while at < len(order):
        longest = int(lengths[order[at]])
        end = next((i for i in range(at, len(order)) if 2 * lengths[order[i]] < longest), len(order))
        mine = torch.tensor(order[at:end])
        inside = torch.arange(longest)[None]
        there = inside < lengths[mine, None]
        tokens = torch.where(there, starts[mine, None] + inside, 0)
        places[tokens[there]] = offset + there.flatten().nonzero()[:, 0]
        groups.append(tokens)
        offset, at = offset + tokens.numel(), end
    return groups, places


class Packed(Network):
    def forward(self, tokens, lengths):
        groups, places = groups_of(lengths)

        def attend(q, k, v):
            every, mixed = torch.cat((q, k, v), -1), []
            for group in groups:
                parts = every.index_select(0, group.flatten()).unflatten(0, group.shape).chunk(3, -1)
                out = functional.scaled_dot_product_attention(*map(heads, parts), is_causal=True)
                mixed.append(out.transpose(-2, -3).flatten(-2).flatten(0, 1))
            return torch.cat(mixed).index_select(0, places)

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
        ends = torch.tensor(shape).cumsum(0) - 1  # whose next token is another sequence's
        return functional.cross_entropy(output, tokens.roll(-1).index_fill(0, ends, -100))
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


def ours(dataset, batch, collate, cost, policy, by_cost):
    job = isochron.Job(global_batch=batch, policy=policy, last_batch="drop")
    model = new(collate)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    said = {"lengths": dataset.lengths, "collate": collate, "cost": cost} if by_cost else {}
    loader = job.loader(dataset, collate_fn=packed if collate == "packed" else padded, **said)
    while True:
        for one in loader:
            job.backward(loss_of(model, one))
            optimizer.step()
            optimizer.zero_grad()
            yield


def medians(rates, tokens):
    """The medians of the turns that count; a sample has `tokens` on average."""
    results = []
    for name, (_, *mine) in rates.items():
        over = [one / base for one, base in zip(mine, rates["isochron by count"][1:], strict=True)]
        rate = statistics.median(mine)
        results.append({"name": name, "samples_per_second": rate, "tokens_per_second": rate * tokens,
                        "over_by_count": statistics.median(over), "turns": mine})  # fmt: skip
    return results


def write(path, options, results):
    """All of it or nothing, whenever the run is cut off."""
    told = {name: value for name, value in vars(options).items() if name not in ("json", "data")}
    part = path.with_suffix(".part")
    part.write_text(json.dumps({**told, "turns": len(results[0]["turns"]), "results": results}) + "\n")
    part.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="of all workers together")
    parser.add_argument("--collate", choices=("packed", "padded"), default="packed")
    parser.add_argument("--text", choices=("speeches", "lognormal"), default="speeches")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data" / "shakespeare")
    parser.add_argument("--turns", type=int, default=3, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--first-steps", type=int, default=20, help="of the turn that does not count, where one learns")
    parser.add_argument("--cost", default=f"attention:width={WIDTH}", help="of a sequence, as job.loader() takes it")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Sequences(speeches(options.data) if options.text == "speeches" else made_up(options.batch * 50))
    kind = {"dataset": dataset, "batch": options.batch, "collate": options.collate}
    mine = {**kind, "cost": options.cost}
    job = isochron.Job(global_batch=options.batch)  # makes the group that the launcher says
    loops = {
        "ddp": stock(job, **kind),
        "isochron by count": ours(policy="isochron", by_cost=False, **mine),
        "lengths as if equal": ours(policy="uniform", by_cost=True, **mine),
        "isochron by cost": ours(policy="isochron", by_cost=True, **mine),
    }
    tokens = sum(dataset.lengths) / len(dataset)
    results = []
    rates = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name, loop in loops.items():
            first = options.first_steps if name.startswith("isochron") else min(3, options.first_steps)
            seconds, _ = timed(job, loop, first if turn == 0 else options.steps)
            rates[name].append(options.batch / seconds)
        if turn > 0 and job.rank == 0:
            results = medians(rates, tokens)
            if options.json:
                write(options.json, options, results)
    for one in results:
        rate, over = f"{one['samples_per_second']:7.1f} samples/s", f"{one['over_by_count']:.2f} x by count"
        print(f"{one['name']:>20}: {rate}, {one['tokens_per_second']:8.0f} tokens/s, {over}")


if __name__ == "__main__":
    main()
