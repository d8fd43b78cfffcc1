"""What the ranks of the tests of lengths do."""

import contextlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset

import isochron.torch as isochron
from isochron._core import Sampler

VOCABULARY = 20


class Speeches(Dataset):
    """Sequences of tokens of very unequal lengths, and a class each."""

    def __init__(self, size=400, bad=()):
        generator = torch.Generator().manual_seed(9)
        self.bad = bad  # what it fails at
        lengths = torch.exp(2.0 + 0.8 * torch.randn(size, generator=generator)).round().clamp(2, 60).long()
        self.lengths = lengths.tolist()
        self.tokens = [torch.randint(0, VOCABULARY, (length + 1,), generator=generator) for length in self.lengths]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError(f"no speech at {index}")
        return index, self.tokens[index]


def padded(samples):
    """Numbers, tokens up to the longest of them, the tokens that follow, and which count."""
    longest = max(len(tokens) - 1 for _, tokens in samples)
    x = torch.zeros(len(samples), longest, dtype=torch.long)
    y, counts = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    for row, (_, tokens) in enumerate(samples):
        length = len(tokens) - 1
        x[row, :length], y[row, :length], counts[row, :length] = tokens[:-1], tokens[1:], True
    return torch.tensor([number for number, _ in samples]), x, y, counts


def packed(samples):
    """All tokens one behind the other, those that follow, and the sample of each."""
    numbers = torch.tensor([number for number, _ in samples])
    x = torch.cat([tokens[:-1] for _, tokens in samples])
    y = torch.cat([tokens[1:] for _, tokens in samples])
    owner = torch.cat([torch.full((len(tokens) - 1,), row) for row, (_, tokens) in enumerate(samples)])
    return numbers, x, y, owner


class Lstm(nn.Module):
    """A language model of padded sequences."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, VOCABULARY)

    def forward(self, x, counts):
        return self.head(self.lstm(self.embed(x))[0])[counts]


class Gpt(nn.Module):
    """A language model of packed sequences, whose attention does not cross from one to the next."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, x, owner):
        places = torch.arange(len(x))
        sees = (owner[:, None] == owner[None, :]) & (places[:, None] >= places[None, :])
        return self.head(self.layers(self.embed(x)[None], mask=~sees)[0])


class Encoder(nn.Module):
    """A classifier of padded sequences."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x, counts):
        states = self.layers(self.embed(x), src_key_padding_mask=~counts) * counts[..., None]
        return self.head(states.sum(1) / counts.sum(1, keepdim=True))


KINDS = {"lstm": (Lstm, padded, "padded"), "gpt": (Gpt, packed, "packed"), "encoder": (Encoder, padded, "padded")}


def loss_of(kind, model, batch):
    """The mean over tokens, or over samples of the classifier."""
    numbers, x, y, mask = batch
    output = model(x, mask)
    if kind == "encoder":
        return functional.cross_entropy(output, numbers % 3)
    return functional.cross_entropy(output, y if kind == "gpt" else y[mask])


def new(kind):
    torch.manual_seed(5)
    return KINDS[kind][0]().double()


def cost_parity(kind, steps=50, batch=24, weighting="exact", by="backward", cost="linear"):
    """How far training dealt by cost ends from one process, how far that went, and how uneven the shares were. With the
    cost "attention" the squares of lengths take time, too."""
    data, collate = Speeches(), KINDS[kind][1]
    job = isochron.Job(global_batch=batch, weighting=weighting)
    model = new(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = job.prepare(model, optimizer)
    count = None if kind == "encoder" else "lengths"
    told = {} if by == "backward" else {"count": count}
    loader = job.loader(data, lengths=data.lengths, cost=cost, collate=KINDS[kind][2], collate_fn=collate, **told)
    shares = []
    while len(shares) < steps:
        for entry in loader:
            shares.append(len(entry[0]))
            if cost == "attention":
                time.sleep(4e-5 * entry[3].numel() * entry[3].shape[1] * (1 + 3 * job.rank))
            time.sleep(4e-4 * float(entry[3].sum() if kind != "gpt" else len(entry[1])) * (1 + 3 * job.rank))
            if by == "weight":
                (loss_of(kind, model, entry) * job.weight).backward()
            else:
                job.backward(loss_of(kind, model, entry), count=count if by == "backward" else None)
            optimizer.step()
            optimizer.zero_grad()
            if len(shares) == steps:
                break
    job.finish_step()
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    record, learned = job.last_step, job._replica.work_per_square
    job.close()

    alone = new(kind)
    start = torch.cat([parameter.detach().flatten() for parameter in alone.parameters()])
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    sampler = Sampler(len(data), batch)
    for _ in range(steps):
        first = sampler.position
        numbers = sampler.samples(first, first + sampler.step_size)
        optimizer.zero_grad()
        loss = loss_of(kind, alone, collate([data[number] for number in numbers]))
        loss.backward()
        optimizer.step()
        sampler.advance()
    theirs = torch.cat([parameter.detach().flatten() for parameter in alone.parameters()])
    return {"far": (mine - theirs).abs().max().item(), "went": (theirs - start).abs().max().item(), "shares": shares,
            "loss": record.loss, "true_loss": loss.item(), "learned": learned}  # fmt: skip


class Spoken(IterableDataset):
    """The same, as they come."""

    def __init__(self, speeches):
        self.speeches = speeches

    def __iter__(self):
        return (self.speeches[number] for number in range(len(self.speeches)))


def cost_stream(num_workers=0, steps=50, batch=24, weighting="exact"):
    """As cost_parity() with the LSTM, for a stream whose lengths are known as its samples arrive."""
    data = Speeches(steps * batch // 2 + 7)
    job = isochron.Job(global_batch=batch, weighting=weighting)
    model = new("lstm")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = job.prepare(model, optimizer)
    loader = job.loader(Spoken(data), lengths=lambda sample: len(sample[1]) - 1, count="lengths", collate_fn=padded,
                        num_workers=num_workers)  # fmt: skip
    taken, shares = [], []
    for epoch in job.epochs(2):
        for entry in loader:
            shares.append(0 if job._share.stand_in else len(entry[0]))
            taken += [] if job._share.stand_in else [(epoch, number) for number in entry[0].tolist()]
            time.sleep(4e-4 * entry[3].numel() * (1 + 3 * job.rank))
            job.backward(loss_of("lstm", model, entry))
            optimizer.step()
            optimizer.zero_grad()
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    work = [one.work for one in job.last_step.workers]
    job.close()
    alone = new("lstm")
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for first in range(0, len(data), batch):
            optimizer.zero_grad()
            loss_of("lstm", alone, padded([data[n] for n in range(first, min(first + batch, len(data)))])).backward()
            optimizer.step()
    theirs = torch.cat([parameter.detach().flatten() for parameter in alone.parameters()])
    return {"far": (mine - theirs).abs().max().item(), "taken": taken, "shares": shares, "work": work,
            "size": len(data)}  # fmt: skip


def cost_counts(num_workers, collate="padded", batch=20, epochs=2, log=None, bad=()):
    """What each step handed out, on workers of which one is slower."""
    data = Speeches(103, bad)
    job = isochron.Job(global_batch=batch, log=log, on_bad_sample="skip" if bad else "stop")
    model = job.prepare(Lstm())
    said = {"collate": collate, "collate_fn": padded, "num_workers": num_workers}
    loader = job.loader(data, lengths=data.lengths, **said)
    rounds = []
    for epoch in job.epochs(epochs):
        for numbers, x, _, counts in job.loader(data, lengths=torch.tensor(data.lengths), **said):
            plan = job._share.plan
            assert plan.positions(job.rank) == sorted(plan.positions(job.rank))
            time.sleep(2e-5 * counts.numel() * (1 + 2 * job.rank))
            taken = job.backward(lambda x=x, counts=counts: model(x, counts).mean())
            if taken and not job._share.stand_in:
                rounds.append((epoch, plan.position, numbers.tolist(), counts.numel()))
    result = {"rounds": rounds, "complete": job.ledger.complete, "sizes": job.batch_sizes, "length": len(loader)}
    job.close()
    return result


def cost_begin(steps, size=95, batch=10):
    job = isochron.Job(global_batch=batch)
    seen = cost_steps(job, steps, size)
    state = job.state_dict()
    job.close()
    return {"seen": seen, "state": state}


def cost_go_on(state, size=95, batch=10, lengths=True):
    job = isochron.Job(global_batch=batch)
    job.load_state_dict(state)
    step = job.step
    try:
        seen = cost_steps(job, 10**9, size, lengths)
    except ValueError as error:
        return {"refused": str(error)}
    complete = job.ledger.complete
    job.close()
    return {"seen": seen, "complete": complete, "step": step}


def cost_steps(job, steps, size, lengths=True):
    data = Speeches(size)
    model = job.prepare(Lstm())
    seen = []
    for numbers, x, _, counts in job.loader(data, lengths=data.lengths if lengths else None, collate_fn=padded):
        seen += [] if job._share.stand_in else numbers.tolist()
        job.backward(model(x, counts).mean())
        steps -= 1
        if steps == 0:
            break
    return seen


def cost_survive(victim, when):
    """One worker is lost in the middle of a step; what the others used of the epoch."""
    me = dist.get_rank()
    job = isochron.Job(global_batch=20, reseed=False)
    data = Speeches(300)
    model = Lstm()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = job.prepare(model, optimizer)
    seen = {}
    for numbers, x, _, counts in job.loader(data, lengths=data.lengths, collate_fn=padded):
        if me == victim and job.step == when:
            os.kill(os.getpid(), signal.SIGKILL)
        step = job.step
        if job.backward(lambda x=x, counts=counts: model(x, counts).mean()):
            seen[step] = [] if job._share.stand_in else numbers.tolist()
            optimizer.step()
        optimizer.zero_grad()
    result = {"size": job.size, "complete": job.ledger.complete, "seen": seen}
    with contextlib.suppress(Exception):
        job.close()
    return result


class Table(Dataset):
    """As Hugging Face's datasets have columns."""

    column_names = ("input_ids", "length")

    def __len__(self):
        return 4

    def __getitem__(self, key):
        lengths = [3, 1, 2, 5]
        if key == "length":
            return lengths
        if key == "input_ids":
            return [list(range(length)) for length in lengths]
        return {"input_ids": list(range(lengths[key])), "length": lengths[key]}


class Tokenizer:
    """As much of one as DataCollatorWithPadding asks for."""

    padding_side, deprecation_warnings = "right", {}

    def pad(self, features, padding=True, max_length=None, pad_to_multiple_of=None, return_tensors=None):
        longest = max(len(one["input_ids"]) for one in features)
        filled = {name: torch.tensor([one[name] for one in features]) for name in ("number", "length")}
        for name in ("input_ids", "attention_mask"):
            rows = [one[name] + [0] * (longest - len(one[name])) for one in features]
            filled[name] = torch.tensor(rows)
        return filled


def cost_hugging_face():
    """A dataset of theirs under DataCollatorWithPadding, dealt by each of two columns and by count."""
    from datasets import Dataset as Columns
    from transformers import DataCollatorWithPadding

    data = Speeches(120)
    columns = Columns.from_dict({
        "number": list(range(120)), "length": data.lengths, "input_ids": [one[:-1].tolist() for one in data.tokens],
        "attention_mask": [[1] * length for length in data.lengths],
    })  # fmt: skip
    results = {}
    for lengths in ("length", "input_ids", None):
        job = isochron.Job(global_batch=24)
        model = new("encoder")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = job.prepare(model, optimizer)
        seen, wasted = [], 0
        for batch in job.loader(columns, lengths=lengths, collate_fn=DataCollatorWithPadding(Tokenizer())):
            counts = batch["attention_mask"].bool()
            time.sleep(2e-5 * counts.numel() * (1 + 2 * job.rank))
            if not job._share.stand_in:
                seen += batch["number"].tolist()
                wasted += counts.numel() - int(counts.sum())
            job.backward(functional.cross_entropy(model(batch["input_ids"], counts), batch["number"] % 3))
            optimizer.step()
            optimizer.zero_grad()
        job.finish_step()
        mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        job.close()
        alone = new("encoder")
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
        sampler = Sampler(120, 24)
        for _ in range(5):
            numbers = sampler.samples(sampler.position, sampler.position + 24)
            optimizer.zero_grad()
            loss_of("encoder", alone, padded([data[number] for number in numbers])).backward()
            optimizer.step()
            sampler.advance()
        theirs = torch.cat([parameter.detach().flatten() for parameter in alone.parameters()])
        results[lengths or "by count"] = {"seen": seen, "wasted": wasted, "far": (mine - theirs).abs().max().item()}
    return results


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(10))


def cost_refused():
    """The words of what is refused, by what is wrong."""
    data = Speeches(6)
    job = isochron.Job(global_batch=2)

    def refusal(dataset=data, **options):
        try:
            job.loader(dataset, **options)
        except ValueError as error:
            return str(error)
        return ""

    words = {
        "too few": refusal(lengths=[1, 2, 3]),
        "not finite": refusal(lengths=[1.0, 2.0, float("nan"), 1.0, 1.0, 1.0]),
        "column": refusal(Table(), lengths="tokens"),
        "no columns": refusal(lengths="input_ids"),
        "cost": refusal(lengths=data.lengths, cost="quadratic"),
        "width": refusal(lengths=data.lengths, cost="attention:width=-1"),
        "cost alone": refusal(cost="attention"),
        "negative": refusal(lengths=data.lengths, cost=lambda lengths: -lengths),
        "shape": refusal(lengths=data.lengths, cost=lambda lengths: lengths.sum()),
        "collate": refusal(lengths=data.lengths, collate="stacked"),
        "sampler": refusal(lengths=data.lengths, sampler=range(6)),
        "stream": refusal(Endless(), lengths=[1] * 10),
        "count": refusal(lengths=data.lengths, count="tokens"),
        "count alone": refusal(count="lengths"),
    }
    job.loader(data, lengths=data.lengths, collate_fn=padded)
    words["second"] = refusal(Speeches(8), lengths=Speeches(8).lengths, name="other")
    job.close()
    return words


def cost_forms():
    """Works by every way to say lengths and costs."""
    from isochron.torch import lengths

    def works(dataset, said, cost):
        return lengths.works_of(lengths.lengths_of(dataset, said), cost).tolist()

    table = Table()
    return {
        "list": works(table, [3, 1, 2, 5], "linear"),
        "tensor": works(table, torch.tensor([3, 1, 2, 5]), "linear"),
        "function": works(table, lambda index: [3, 1, 2, 5][index], "linear"),
        "column": works(table, "length", "linear"),
        "sequences": works(table, "input_ids", "linear"),
        "attention": works(table, "length", "attention:width=10"),
        "own": works(table, "length", lambda lengths: 2 * lengths),
    }
