#!/usr/bin/env python3
"""One worker of a comparison on samples of unequal length, in turns.

Stock DDP, isochron by count, lengths balanced as if the workers were equal, and isochron by cost:

    build/isochron launch --cluster hl8 -- .venv/bin/python benchmarks/python/lengths.py --collate padded

Packed: a small GPT whose attention stays within a sequence. Padded: a small encoder that classifies. The text is
Shakespeare's speeches, as `make data` brings them, a token a byte, cut to at most 512; or `--text lognormal`, made up
(sigma 0.8, median 60 and 8 to 512 tokens; of GPT-2's size, for GPUs, in bf16 with AdamW, 200 and 16 to 1024). The
first turn, in which policies learn, does not count; the turns after it are on the same samples for all loops, since
steps of other samples take other times. The first worker prints medians over the turns; --json FILE has them after
every turn, so that a run may be cut off. benchmarks/lengths.py runs this on several clusters.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import statistics

import torch
from loops import timed
from tasks import bf16
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

import isochron.torch as isochron
from isochron import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Size:
    vocabulary: int = 256
    width: int = 128
    heads: int = 4
    layers: int = 2
    shortest: int = 8
    median: float = 60.0
    longest: int = 512


SIZES = {"small": Size(), "gpt2": Size(16384, 768, 12, 12, 16, 200.0, 1024)}


def made_up(size, count):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.exp(math.log(size.median) + 0.8 * torch.randn(count, generator=generator)).round()
    lengths = lengths.clamp(size.shortest, size.longest)
    return [torch.randint(0, size.vocabulary, (int(length),), generator=generator) for length in lengths]


def speeches(size, folder):
    """Those of the training text, in its order."""
    text = torch.frombuffer(bytearray((folder / "train.bin").read_bytes()), dtype=torch.int16).long()
    starts = torch.frombuffer(bytearray((folder / "train.starts").read_bytes()), dtype=torch.int64).tolist()
    return [text[first : min(last, first + size.longest)] for first, last in itertools.pairwise([*starts, len(text)])]


class Sequences(Dataset):
    def __init__(self, tokens):
        self.tokens = tokens
        self.lengths = [len(one) for one in tokens]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, attend):
        q, k, v = self.split(self.before(x)).chunk(3, -1)
        x = x + self.join(attend(q, k, v))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Network(nn.Module):
    def __init__(self, size, outputs):
        super().__init__()
        self.heads = size.heads
        self.embed = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(Block(size.width) for _ in range(size.layers))
        self.head = nn.Linear(size.width, outputs)

    def states(self, tokens, attend):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, attend)
        return x

    def apart(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


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
        groups, places = [group.to(tokens.device) for group in groups], places.to(tokens.device)

        def attend(q, k, v):
            every, mixed = torch.cat((q, k, v), -1), []
            for group in groups:
                parts = every.index_select(0, group.flatten()).unflatten(0, group.shape).chunk(3, -1)
                out = functional.scaled_dot_product_attention(*map(self.apart, parts), is_causal=True)
                mixed.append(out.transpose(-2, -3).flatten(-2).flatten(0, 1))
            return torch.cat(mixed).index_select(0, places)

        return self.head(self.states(tokens, attend))


class Padded(Network):
    def forward(self, tokens, counts):
        def attend(q, k, v):
            apart = map(self.apart, (q, k, v))
            mixed = functional.scaled_dot_product_attention(*apart, attn_mask=counts[:, None, None])
            return mixed.transpose(-2, -3).flatten(-2)

        x = self.states(tokens, attend) * counts[..., None]
        return self.head(x.sum(1) / counts.sum(1, keepdim=True))


def packed(samples):
    return torch.cat(samples), [len(one) for one in samples]


def padded(samples):
    tokens = nn.utils.rnn.pad_sequence(samples, batch_first=True)
    return tokens, torch.arange(tokens.shape[1])[None] < torch.tensor([len(one) for one in samples])[:, None]


def loss_of(model, batch, device):
    tokens, shape = batch
    tokens = tokens.to(device)
    with bf16(device):
        if isinstance(shape, list):
            output = model(tokens, shape)
            ends = torch.tensor(shape).cumsum(0) - 1  # whose next token is another sequence's
            return functional.cross_entropy(output, tokens.roll(-1).index_fill(0, ends.to(device), -100))
        return functional.cross_entropy(model(tokens, shape.to(device)), tokens[:, 0] % 8)


def new(size, collate, device):
    torch.manual_seed(0)
    model = (Packed(size, size.vocabulary) if collate == "packed" else Padded(size, 8)).to(device)
    if device == "cpu":
        return model, torch.optim.SGD(model.parameters(), lr=0.01)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


class SameOrder(Sampler):
    """DDP's share of the steps of a job with equal shares, from an epoch on."""

    def __init__(self, job, dataset, batch):
        self.job, self.batch = job, batch
        self.order = _core.Sampler(len(dataset), batch, 0, "drop")

    def __iter__(self):
        share = self.batch // self.job.size
        for position in range(0, self.order.samples_per_epoch, self.batch):
            first = position + self.job.rank * share
            yield from self.order.samples(first, first + share)


def stock(job, dataset, batch, collate, size, device, first):
    """The first `first` steps are of epoch 0, those after them of epoch 1; as in ours()."""
    model, optimizer = new(size, collate, device)
    model = DistributedDataParallel(model, process_group=job._world.gradients)
    sampler = SameOrder(job, dataset, batch)
    function = packed if collate == "packed" else padded
    loader = DataLoader(dataset, batch_size=batch // job.size, sampler=sampler, collate_fn=function)
    for epoch in itertools.count():
        sampler.order.seek(epoch, 0)
        for one in itertools.islice(loader, first if epoch == 0 else None):
            loss_of(model, one, device).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def ours(dataset, batch, collate, size, device, cost, policy, by_cost, first):
    # gpu.py says why nothing looks at the gradients of GPUs.
    numbers = "stop" if device == "cpu" else "ignore"
    job = isochron.Job(global_batch=batch, policy=policy, last_batch="drop", device=device, on_nonfinite=numbers)
    model, optimizer = job.prepare(*new(size, collate, device))
    said = {"lengths": dataset.lengths, "collate": collate, "cost": cost} if by_cost else {}
    loader = job.loader(dataset, collate_fn=packed if collate == "packed" else padded, **said)
    for epoch in itertools.count():
        for step, one in enumerate(loader, 1):
            job.backward(loss_of(model, one, device))
            optimizer.step()
            optimizer.zero_grad()
            if epoch == 0 and step == first:
                break  # what follows belongs to the same turn, so that the next one begins with a step
            yield
        if epoch == 0:
            job.end_epoch()
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
    parser.add_argument("--batch", type=int, default=60, help="of all workers together")
    parser.add_argument("--collate", choices=("packed", "padded"), default="packed")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu", help="of this worker")
    parser.add_argument("--text", choices=("speeches", "lognormal"), default="speeches")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data" / "shakespeare")
    parser.add_argument("--turns", type=int, default=3, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--first-steps", type=int, default=20, help="of the turn that does not count, where one learns")
    parser.add_argument("--cost", help="of a sequence, as job.loader() takes it; attention over the width if not given")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    few = min(3, options.first_steps)  # of those that have nothing to learn
    torch.set_num_threads(1)
    size, device = SIZES[options.size], options.device
    found = speeches(size, options.data) if options.text == "speeches" else made_up(size, options.batch * 50)
    dataset = Sequences(found)
    kind = {"dataset": dataset, "batch": options.batch, "collate": options.collate, "size": size, "device": device}
    mine = {**kind, "cost": options.cost or f"attention:width={size.width}"}
    job = isochron.Job(global_batch=options.batch, device=device)  # makes the group that the launcher says
    if options.batch % job.size:
        parser.error(f"--batch is {options.batch}; permitted: a multiple of the {job.size} workers, for DDP's sake")
    first = {"ddp": few, "isochron by count": options.first_steps, "lengths as if equal": few,
             "isochron by cost": options.first_steps}  # fmt: skip
    loops = {
        "ddp": stock(job, first=few, **kind),
        "isochron by count": ours(policy="isochron", by_cost=False, first=options.first_steps, **mine),
        "lengths as if equal": ours(policy="uniform", by_cost=True, first=few, **mine),
        "isochron by cost": ours(policy="isochron", by_cost=True, first=options.first_steps, **mine),
    }
    tokens = sum(dataset.lengths) / len(dataset)
    results = []
    rates = {name: [] for name in loops}
    for turn in range(options.turns + 1):
        for name, loop in loops.items():
            seconds, _ = timed(job, loop, first[name] if turn == 0 else options.steps)
            rates[name].append(options.batch / seconds)
            if job.rank == 0:
                print(f"turn {turn}, {name}: {options.batch / seconds:.1f} samples/s", flush=True)
        if turn > 0 and job.rank == 0:
            results = medians(rates, tokens)
            if options.json:
                write(options.json, options, results)
    for one in results:
        rate, over = f"{one['samples_per_second']:7.1f} samples/s", f"{one['over_by_count']:.2f} x by count"
        print(f"{one['name']:>20}: {rate}, {one['tokens_per_second']:8.0f} tokens/s, {over}")


if __name__ == "__main__":
    main()
