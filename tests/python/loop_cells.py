"""The cells of the matrix of loops: what people's loops look like, each run on two processes of which one is slow, and
again in one. test_torch_loops.py runs them and compares; docs/loops.md lists them.

A cell is a function of a Run. Every sample is its number, so that what a step used is known; whoever computes sleeps for
as long as its samples take, a millisecond each on the slow worker and a quarter of that on the fast one.
"""

import contextlib
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, WeightedRandomSampler

import isochron.torch as isochron

BATCH = 40
STEPS = 12
SIZE = BATCH * STEPS
SECONDS = (0.0005, 0.002)  # a sample, by rank


@dataclass
class Cell:
    framework: str
    loop: str
    feature: str
    run: Callable
    parity: str = "1e-10"  # or the reason why there is none
    once: str = "yes"

    @property
    def name(self):
        return f"{self.framework}-{self.loop}-{self.feature}".replace(" ", "_")


CELLS = {}


def cell(framework, loop, feature, **more):
    def enter(function):
        one = Cell(framework, loop, feature, function, **more)
        assert one.name not in CELLS
        CELLS[one.name] = one
        return function

    return enter


@dataclass
class Run:
    """One cell, on this process."""

    slow: bool
    folder: str
    seen: list = field(default_factory=list)  # (pass through the data, number)
    splits: list = field(default_factory=list)
    modules: list = field(default_factory=list)
    jobs: list = field(default_factory=list)
    losses: list = field(default_factory=list)

    def job(self, **options):
        options = {"global_batch": BATCH, "on_step": self.note, "numbers": "ignore", **options}
        self.jobs.append(isochron.Job(**options))
        return self.jobs[-1]

    def note(self, record):
        self.splits.append(record.batch_sizes)
        self.losses.append(record.loss)

    def compute(self, numbers, epoch=0):
        """What the samples cost; they count as used."""
        self.use(numbers, epoch)
        self.sleep(len(numbers))

    def use(self, numbers, epoch=0):
        job = self.jobs[-1]
        if job._share is None or not job._share.stand_in:
            self.seen += [(epoch, int(number)) for number in numbers]

    def sleep(self, samples):
        if self.slow:
            time.sleep(SECONDS[self.jobs[-1].rank] * samples)

    def model(self, **more):
        self.modules.append(small_model(**more))
        return self.modules[-1]

    def result(self):
        for job in self.jobs:
            job.close()
        weights = [value.detach().flatten().double() for one in self.modules for value in one.state_dict().values()]
        return {"seen": self.seen, "splits": self.splits, "losses": self.losses,
                "weights": torch.cat(weights).tolist()}  # fmt: skip


def run_cell(name, slow, folder):
    torch.manual_seed(0)
    run = Run(slow, folder)
    CELLS[name].run(run)
    return run.result()


def small_model(width=8, norm=False, inputs=2, outputs=1):
    torch.manual_seed(4)
    layers = [nn.Linear(inputs, width), *([nn.BatchNorm1d(width)] if norm else []), nn.Tanh(), nn.Linear(width, outputs)]
    return nn.Sequential(*layers).double()


class Points(Dataset):
    """A number, a point and what belongs to it."""

    def __init__(self, size=SIZE, first=0, noisy=False):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(size, 2, generator=generator, dtype=torch.float64)
        self.first, self.noisy = first, noisy

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index] + (torch.rand(2, dtype=torch.float64) if self.noisy else 0.0)
        return self.first + index, x, (3.0 * self.x[index, :1] - self.x[index, 1:]).tanh()


class PointStream(IterableDataset):
    def __init__(self, size=SIZE):
        self.points = Points(size)

    def __iter__(self):
        return (self.points[index] for index in range(len(self.points)))


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def error(model, x, y):
    return functional.mse_loss(model(x), y)


# PyTorch: kinds of loops.


@cell("torch", "one backward", "job.backward")
def plain(run, dataset=None, loader=None, model=None, optimizer=None, **options):
    job = run.job(**options)
    model = run.model() if model is None else model
    model, optimizer = job.prepare(model, sgd(model) if optimizer is None else optimizer(model))
    loader = job.loader(Points() if dataset is None else dataset, **(loader or {}))
    for epoch in job.epochs(1):
        for number, x, y in loader:
            run.compute(number, epoch)
            job.backward(error(model, x, y))
            optimizer.step()
            optimizer.zero_grad()


@cell("torch", "one backward", "job.weight")
def weighted(run, **options):
    job = run.job(**options)
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        (error(model, x, y) * job.weight).backward()
        optimizer.step()
        optimizer.zero_grad()


def two_losses(run, backward, **options):
    job = run.job(**options)
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        backward(job, error(model, x, y))
        backward(job, model(x).square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()


def scaled_backward(job, loss):
    (loss * job.weight).backward()


@cell("torch", "two losses", "job.backward")
def two_losses_by_job(run):
    two_losses(run, isochron.Job.backward)


@cell("torch", "two losses", "job.weight")
def two_losses_by_weight(run):
    two_losses(run, scaled_backward)


def gan(run, backward, **options):
    job = run.job(**options)
    generator, critic = run.model(outputs=2), run.model()
    generator, critic, of_generator, of_critic = job.prepare(generator, critic, sgd(generator), sgd(critic))
    for number, x, _ in job.loader(Points()):
        run.compute(number)
        made = generator(x)
        backward(job, critic(x).square().mean() + (critic(made.detach()) - 1.0).square().mean())
        of_critic.step()
        of_critic.zero_grad()
        backward(job, critic(made).square().mean())
        of_generator.step()
        of_generator.zero_grad()
        of_critic.zero_grad()


@cell("torch", "GAN", "job.backward")
def gan_by_job(run):
    gan(run, isochron.Job.backward)


@cell("torch", "GAN", "job.weight")
def gan_by_weight(run):
    gan(run, scaled_backward)


@cell("torch", "several forwards", "one backward")
def several_forwards(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        first = error(model, x, y)
        run.sleep(len(number) / 4)
        job.backward(first + error(model, x.flip(1), -y) + model(x * 0.5).square().mean())
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "physics-informed", "gradient of the inputs")
def physics_informed(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        x.requires_grad_(True)
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        job.backward(functional.mse_loss(value, y) + 0.01 * slope.square().mean())
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "actor and critic", "two heads, two passes")
def actor_critic(run):
    job = run.job(ddp={"find_unused_parameters": True})
    model = Heads()
    run.modules.append(model)
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(functional.mse_loss(model(x, 0), y))
        run.sleep(len(number) / 2)
        job.backward(model(x, 1).square().mean())
        optimizer.step()
        optimizer.zero_grad()


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.body = nn.Linear(2, 8).double()
        self.heads = nn.ModuleList(nn.Linear(8, 1).double() for _ in range(2))

    def forward(self, x, head):
        return self.heads[head](self.body(x).tanh())


@cell("torch", "one backward", "loss in a function")
def loss_in_a_function(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(lambda x=x, y=y: error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "one backward", "sum over the samples")
def sum_of_losses(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model, lr=0.002))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(functional.mse_loss(model(x), y, reduction="sum"), reduction="sum")
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "one backward", "mean over tokens")
def mean_over_tokens(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        tokens = number % 5 + 1
        losses = (model(x) - y).square().squeeze(1) * tokens
        job.backward(losses.sum() / tokens.sum(), count=tokens.sum())
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "accumulate", "two batches a step")
def accumulated(run, dataset=None, batch=BATCH // 2):
    job = run.job(global_batch=batch)
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points() if dataset is None else dataset):
        run.compute(number)
        with job.accumulate(2) as last:
            job.backward(error(model, x, y))
        if last:
            optimizer.step()
            optimizer.zero_grad()


@cell("torch", "accumulate", "two losses")
def accumulated_twice(run):
    job = run.job(global_batch=BATCH // 2)
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        with job.accumulate(2) as last:
            job.backward(error(model, x, y))
            job.backward(model(x).square().mean() * 0.1)
        if last:
            optimizer.step()
            optimizer.zero_grad()


@cell("torch", "one backward", "clipping and a schedule")
def clipped(run):
    job = run.job()
    model = run.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    model, optimizer, schedule = job.prepare(model, optimizer, schedule)
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(error(model, x, y))
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


@cell("torch", "one backward", "BatchNorm")
def batch_norm(run):
    plain(run, model=run.model(norm=True))


@cell("torch", "two losses", "BatchNorm")
def batch_norm_twice(run):
    job = run.job()
    model = run.model(norm=True)
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(error(model, x, y))
        run.sleep(len(number) / 2)
        job.backward(model(x + 1.0).square().mean())
        optimizer.step()
        optimizer.zero_grad()


class Checkpointed(nn.Module):
    def __init__(self, inner, reentrant):
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=self.reentrant)


@cell("torch", "one backward", "activation checkpointing")
def checkpointed(run):
    plain(run, model=Checkpointed(run.model(), reentrant=False))


@cell("torch", "one backward", "reentrant checkpointing")
def checkpointed_reentrant(run):
    inner = run.model()
    plain(run, model=nn.Sequential(nn.Linear(2, 2).double(), Checkpointed(inner, reentrant=True)))


@cell("torch", "two losses", "torch.compile")
def compiled(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    compiled_model = torch.compile(model, backend="aot_eager")
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(error(compiled_model, x, y))
        run.sleep(len(number) / 2)
        job.backward(compiled_model(x).square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "one backward", "one's own DDP")
def own_ddp(run):
    model = run.model()
    if torch.distributed.is_initialized():
        model = nn.parallel.DistributedDataParallel(model)
    plain(run, model=model)


def sharded_model(run):
    """With FSDP2 on two processes; its tensors are whole afterwards."""
    model = run.model()
    if not torch.distributed.is_initialized():
        return model
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))


def whole(model):
    """A copy that is not sharded."""
    copied = small_model()
    values = {name: value.full_tensor() if hasattr(value, "full_tensor") else value
              for name, value in model.state_dict().items()}  # fmt: skip
    copied.load_state_dict(values)
    return copied


@cell("torch", "one backward", "FSDP2")
def fsdp(run):
    model = sharded_model(run)
    plain(run, model=model)
    run.modules = [whole(model)]


@cell("torch", "two losses", "FSDP2")
def fsdp_twice(run):
    job = run.job()
    model = sharded_model(run)
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(error(model, x, y))
        run.sleep(len(number) / 2)
        job.backward(model(x).square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()
    run.modules = [whole(model)]


@cell("torch", "one backward", "average of the weights")
def averaged(run):
    job = run.job()
    model = run.model()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    by_hand = copy.deepcopy(model).eval()
    run.modules += [average, by_hand]
    optimizer = sgd(model)
    model, average, by_hand, optimizer = job.prepare(model, average, by_hand, optimizer)
    assert isinstance(average, torch.optim.swa_utils.AveragedModel) and isinstance(by_hand, nn.Sequential)
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(job.unwrap(model))
        with torch.no_grad():
            for mine, theirs in zip(by_hand.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)


# PyTorch: kinds of data.


@cell("torch", "data", "random augmentation")
def augmented(run):
    plain(run, dataset=Points(noisy=True))


@cell("torch", "data", "two loader processes")
def processes(run):
    plain(run, dataset=Points(noisy=True), loader={"num_workers": 2})


def as_batch(samples):
    numbers, xs, ys = zip(*samples, strict=True)
    return torch.tensor(numbers), torch.stack(xs), torch.stack(ys)


@cell("torch", "data", "collate_fn")
def collated(run):
    plain(run, loader={"collate_fn": as_batch})


@cell("torch", "data", "DataLoader")
def data_loader(run):
    plain(run, dataset=DataLoader(Points(), batch_size=8, shuffle=True, collate_fn=as_batch, num_workers=1))


@cell("torch", "data", "WeightedRandomSampler", once="a sampler's draws")
def weighted_sampler(run):
    weights = torch.arange(1, SIZE + 1, dtype=torch.float64)
    plain(run, loader={"sampler": WeightedRandomSampler(weights, SIZE)})


@cell("torch", "data", "Subset and ConcatDataset")
def subsets(run):
    parts = [Subset(Points(), range(0, SIZE, 2)), Points(SIZE // 2, first=SIZE)]
    plain(run, dataset=ConcatDataset(parts))


@cell("torch", "data", "to_device")
def on_device(run):
    plain(run, loader={"to_device": True})


@cell("torch", "data", "last batch dropped")
def dropped(run):
    plain(run, dataset=Points(SIZE + 7), last_batch="drop")


@cell("torch", "data", "last batch short")
def short_last(run):
    plain(run, dataset=Points(SIZE + 7))


@cell("torch", "stream", "one process")
def stream(run):
    plain(run, dataset=PointStream(SIZE + 7))


@cell("torch", "stream", "two loader processes")
def stream_processes(run):
    plain(run, dataset=PointStream(SIZE + 7), loader={"num_workers": 2})


@cell("torch", "stream", "accumulate")
def stream_accumulated(run):
    accumulated(run, PointStream(SIZE + 7))


@cell("torch", "stream", "two losses")
def stream_twice(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(PointStream()):
        run.compute(number)
        job.backward(error(model, x, y))
        job.backward(model(x).square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()


def read_part(part):
    points = Points(SIZE + 7)
    return (points[index] for index in range(part, len(points), 24))


@cell("torch", "stream", "Shards", parity="another order than one process has")
def shards(run):
    plain(run, dataset=isochron.Shards(range(24), read_part))


# PyTorch: loops that leave early, change their data, or go on.


def train(run, job, model, optimizer, loader, steps=None, epoch=None):
    """As far as `steps`."""
    for done, (number, x, y) in enumerate(loader, 1):
        run.compute(number, job.epoch if epoch is None else epoch)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if done == steps:
            break


@cell("torch", "early exit", "end_epoch")
def early_exit(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points())
    epochs = []
    for epoch in job.epochs(3):
        epochs.append(epoch)
        train(run, job, model, optimizer, loader, steps=5)
        next(iter(loader))  # a batch that is not used
        job.end_epoch()
    assert epochs == [0, 1, 2] and job.step == 15


@cell("torch", "early exit", "max_steps")
def most_steps(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points(), max_steps=5)
    assert len(loader) == 5
    for epoch in job.epochs(3):
        train(run, job, model, optimizer, loader, epoch=epoch)
    assert job.step == 15


@cell("torch", "early exit", "break and go on")
def left_and_back(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points())
    for number, x, y in loader:
        run.compute(number)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if job.step == 4:
            break
    train(run, job, model, optimizer, loader)
    assert job.step == STEPS and job.ledger.complete


@cell("torch", "two datasets", "one after the other")
def pretrained(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    before, after = job.loader(Points(SIZE // 2)), job.loader(Points(SIZE // 2 + 20, first=SIZE))
    for epoch in before.epochs(2):
        train(run, job, model, optimizer, before, epoch=epoch)
    for epoch in after.epochs(1):
        train(run, job, model, optimizer, after, epoch=epoch)
    assert before.ledger.complete and after.ledger.complete
    assert (before.epoch, after.epoch) == (2, 1)


@cell("torch", "two datasets", "in one step", once="in every epoch of its own")
def beside(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    first, second = job.loader(Points()), job.loader(Points(SIZE // 2 - 10, first=SIZE))
    for (number, x, y), (other, u, _) in zip(first, second, strict=False):
        run.compute(number)
        run.use(other, "beside")
        job.backward(error(model, x, y) + (model(u) - model(-u)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    assert first.ledger.complete and not second.ledger.duplicates
    assert (second.epoch, second.ledger.used) == divmod(SIZE, SIZE // 2 - 10)  # of the third epoch


@cell("torch", "two datasets", "a new object each epoch")
def new_objects(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for epoch in job.epochs(2):
        train(run, job, model, optimizer, job.loader(Points(SIZE // 2)), epoch=epoch)
    assert job.step == STEPS


def resumed(run, order, dataset=Points):
    """Half of the epoch, and the rest in a new job, whose calls come in any order."""
    path, log = f"{run.folder}/job.pt", f"{run.folder}/run.jsonl"
    model, data = run.model(), dataset()
    for half in range(2):
        job = run.job(log=log)
        again = copy.deepcopy(model)
        optimizer = sgd(again)
        loader = job.loader(data) if order == "loader first" else None
        wrapped, optimizer = job.prepare(again, optimizer)
        if half == 1:
            job.restore(path)
        loader = job.loader(data) if loader is None else loader
        train(run, job, wrapped, optimizer, loader, steps=STEPS // 2 if half == 0 else None, epoch=0)
        if half == 0:
            job.save(path)
            job.close()
    run.modules = [again]


@cell("torch", "resume", "loader before restore")
def loader_first(run):
    resumed(run, "loader first")


@cell("torch", "resume", "restore before loader")
def restore_first(run):
    resumed(run, "restore first")


@cell("torch", "resume", "stream")
def stream_resumed(run):
    resumed(run, "loader first", PointStream)


@cell("torch", "one backward", "evaluation in between")
def evaluated(run):
    job = run.job(log=f"{run.folder}/run.jsonl")
    model = run.model(norm=True)
    model, optimizer = job.prepare(model, sgd(model))
    points = Points()
    for number, x, y in job.loader(points):
        run.compute(number)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if job.step % 4 == 3:
            model.eval()
            with torch.no_grad():
                mine = error(model, points.x[job.rank :: job.size], points.x[job.rank :: job.size, :1]).item()
            job.evaluation(loss=job.sum([mine])[0])
            model.train()


# The table of docs/loops.md.


def table():
    rows = [("framework", "loop", "with", "like one process", "each sample once", "split follows")]
    rows += [(one.framework, one.loop, one.feature, one.parity, one.once, "yes") for one in CELLS.values()]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def with_table(text):
    """A document with the table in place of the one that it has."""
    before, _, rest = text.partition("| framework |")
    after = rest.partition("\n\n")[2]
    return before + table() + ("\n" + after if after else "")


import framework_cells  # noqa: E402, F401: enters its cells
