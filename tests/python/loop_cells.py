"""The cells of the matrix of loops: what people's loops look like, each run on two processes of which one is slow, and
again in one. test_torch_loops.py runs them and compares; docs/loops.md lists them (loop_document.py).

A cell is a function of a Run. Every sample has a number, so that what a step used is known; whoever computes sleeps for
as long as its samples take, 4 ms each on the slow worker and a quarter of that on the fast one: a step is long enough
that a scheduler's time slice, taken by other work, is a small part of it.
"""

import copy
import pathlib
import runpy
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset

import isochron.torch as isochron

SHARED = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[1] / "tensorflow" / "loop_table.py"))
follows = SHARED["follows"]
BATCH = 40
STEPS = 12
SIZE = BATCH * STEPS
SECONDS = (0.001, 0.004, 0.002)  # a sample, by rank
OWN_ORDER = "1e-10, in its own order"  # as one process that is given the same batches


@dataclass
class Cell:
    framework: str
    loop: str
    feature: str
    run: Callable
    parity: str = "1e-10"  # or the reason why there is none
    once: str = "yes"
    needs: str | None = None  # a package beside the framework
    pace: float = 1.0  # times as long as elsewhere a sample takes: where other processes read it, and share the cores

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
    pace: float = 1.0
    seen: list = field(default_factory=list)  # (pass through the data, number)
    splits: list = field(default_factory=list)
    modules: list = field(default_factory=list)
    jobs: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    batches: list = field(default_factory=list)  # (step, numbers)
    seconds: list = field(default_factory=list)  # of computing a sample, by rank, a step at a time

    def job(self, **options):
        options = {"global_batch": BATCH, "on_step": self.note, **options}
        self.jobs.append(isochron.Job(**options))
        return self.jobs[-1]

    def note(self, record):
        self.splits.append(record.batch_sizes)
        self.losses.append(record.loss)
        self.seconds.append([worker.compute_seconds / size if size else None
                             for worker, size in zip(record.workers, record.batch_sizes, strict=True)])  # fmt: skip

    def compute(self, numbers, epoch=0):
        """What the samples cost; they count as used."""
        self.use(numbers, epoch)
        self.sleep(len(numbers))

    def use(self, numbers, epoch=0):
        job = self.jobs[-1]
        if job._share is None or not job._share.stand_in:
            self.seen += [(epoch, int(number)) for number in numbers]
            self.batches.append((job.step, [int(number) for number in numbers]))

    def sleep(self, samples):
        if self.slow:
            time.sleep(self.pace * SECONDS[self.jobs[-1].rank] * samples)

    def model(self, **more):
        self.modules.append(small_model(**more))
        return self.modules[-1]

    def result(self):
        for job in self.jobs:
            job.close()
        weights = [value.detach().flatten().double() for one in self.modules for value in one.state_dict().values()]
        return {"seen": self.seen, "splits": self.splits, "losses": self.losses, "batches": self.batches,
                "seconds": self.seconds, "weights": torch.cat(weights).tolist()}  # fmt: skip


def run_cell(name, slow, folder):
    torch.manual_seed(0)
    run = Run(slow, folder, CELLS[name].pace)
    CELLS[name].run(run)
    return run.result()


def small_model(width=8, norm=False, inputs=2, outputs=1):
    torch.manual_seed(4)
    between = [nn.BatchNorm1d(width)] if norm else []
    return nn.Sequential(nn.Linear(inputs, width), *between, nn.Tanh(), nn.Linear(width, outputs)).double()


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


def replay(workers):
    """What one process makes of the batches that the workers used together, with the loop of plain()."""
    steps = {}
    for step, numbers in (batch for one in workers for batch in one["batches"]):
        steps.setdefault(step, []).extend(numbers)
    model, points, losses = small_model(), Points(SIZE + 7), []
    optimizer = sgd(model)
    for step in sorted(steps):
        _, xs, ys = zip(*(points[number] for number in steps[step]), strict=True)
        loss = error(model, torch.stack(xs), torch.stack(ys))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = torch.cat([value.detach().flatten() for value in model.parameters()])
    return {"losses": losses, "splits": list(steps), "weights": weights.tolist()}


class PointStream(IterableDataset):
    def __init__(self, size=SIZE, **more):
        self.points = Points(size, **more)

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


def as_it_is(model):
    return model


@cell("torch", "one backward", "job.weight")
def weighted(run, model=None, call=as_it_is):
    job = run.job()
    model = run.model() if model is None else model
    model, optimizer = job.prepare(model, sgd(model))
    model = call(model)
    for number, x, y in job.loader(Points()):
        run.compute(number)
        (error(model, x, y) * job.weight).backward()
        optimizer.step()
        optimizer.zero_grad()


@cell("torch", "one backward", "all_reduce of one's own")
def reduced(run):
    """As people do it for their logs, before the backward pass: it waits for the slowest."""
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        loss = error(model, x, y)
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(loss.detach().clone())
        job.backward(loss)
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


def scaled_backward(job, loss, **options):
    (loss * job.weight).backward(**options)


@cell("torch", "two losses", "job.backward")
def two_losses_by_job(run):
    two_losses(run, isochron.Job.backward)


@cell("torch", "two losses", "job.weight")
def two_losses_by_weight(run):
    two_losses(run, scaled_backward)


def adversarial_step(job, backward, of_generator, of_critic, critics_loss, generators_loss):
    """A step of both; the generator's loss is computed when the critic has taken its own."""
    backward(job, critics_loss)
    of_critic.step()
    of_critic.zero_grad()
    backward(job, generators_loss())
    of_generator.step()
    of_generator.zero_grad()
    of_critic.zero_grad()


def gan(run, backward, norm=False, wrap=as_it_is, call=as_it_is):
    job = run.job()
    generator, critic = wrap(run.model(outputs=2, norm=norm)), wrap(run.model(norm=norm))
    generator, critic, of_generator, of_critic = job.prepare(generator, critic, sgd(generator), sgd(critic))
    generator, critic = call(generator), call(critic)
    for number, x, _ in job.loader(Points()):
        run.compute(number)
        made = generator(x)
        apart = critic(x).square().mean() + (critic(made.detach()) - 1.0).square().mean()
        adversarial_step(job, backward, of_generator, of_critic, apart, lambda made=made: critic(made).square().mean())


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
def accumulated(run, dataset=None, model=None, call=as_it_is):
    job = run.job(global_batch=BATCH // 2)
    model = run.model() if model is None else model
    model, optimizer = job.prepare(model, sgd(model))
    model = call(model)
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
    plain(run, model=in_own_ddp(run.model()))


def in_own_ddp(model):
    return nn.parallel.DistributedDataParallel(model) if torch.distributed.is_initialized() else model


def in_fsdp(model):
    """On several processes."""
    if not torch.distributed.is_initialized():
        return model
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),)))


def sharded_model(run):
    return in_fsdp(run.model())


def whole(model, **more):
    """A copy that is not sharded."""
    copied = small_model(**more)
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


import data_cells  # noqa: E402, F401: enter their cells
import framework_cells  # noqa: E402, F401
import model_cells  # noqa: E402, F401
import trainer_cells  # noqa: E402, F401
