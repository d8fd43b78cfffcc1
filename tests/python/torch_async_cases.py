"""What the ranks of the asynchronous tests do; torch_cases.py hands these on."""

import math
import os
import pathlib
import signal
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler

OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def values(model):
    tensors = [*model.parameters(), *(one for one in model.buffers() if one.is_floating_point())]
    return torch.cat([one.detach().double().flatten() for one in tensors])


def train(job, model, optimizer, dataset, epochs, after=None):
    loader = job.loader(dataset)
    for epoch in job.epochs(epochs):
        for x, y in loader:
            job.backward(models.loss_of(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        if after is not None:
            after(epoch)


def bound_zero(optimizer, epochs=2):
    """How far training in rounds ends from single-process training, and how far that itself went."""
    dataset = models.Text(size=110)
    model = models.make("lstm")
    start = values(model)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    with isochron.Job(global_batch=24, sync="ssp", staleness=0, policy="static:weights=1/2", reseed=False) as job:
        model, stepper = job.prepare(model, stepper)
        train(job, model, stepper, dataset, epochs)
        assert job.ledger.complete
    alone = alone_after(optimizer, dataset, epochs)
    return {"far": (values(model) - alone).abs().max().item(), "went": (alone - start).abs().max().item()}


def alone_after(optimizer, dataset, epochs):
    model = models.make("lstm")
    stepper = OPTIMIZERS[optimizer](model.parameters())
    sampler = Sampler(len(dataset), 24, 0)
    while sampler.epoch < epochs:
        indices = sampler.samples(sampler.position, sampler.position + sampler.step_size)
        x, y = torch.utils.data.default_collate([dataset[index] for index in indices])
        models.loss_of(model(x), y).backward()
        stepper.step()
        stepper.zero_grad()
        sampler.advance()
    return values(model)


class Slope(nn.Module):
    """Its gradient is 1 everywhere, whatever the samples."""

    def __init__(self, size=1001):
        super().__init__()
        self.place = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return self.place.sum() + 0.0 * x.sum()


class Rates:
    """In place of TensorBoard's writer: the rate of all workers after every update."""

    def __init__(self):
        self.values = []

    def add_scalar(self, name, value, _step):
        if name == "isochron/samples_per_second":
            self.values.append(value)


def fixed_gradients(folder, log):
    """Every update moves every number by exactly 1; the last rank sleeps until the first has done 5 iterations."""
    signal_file = pathlib.Path(folder) / "go"
    model = Slope()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    mine, rates = 0, Rates()
    with isochron.Job(global_batch=12, sync="asp", policy="uniform", log=log, tensorboard=rates) as job:
        model, optimizer = job.prepare(model, optimizer)
        loader = job.loader(models.Images(size=200))
        for _ in job.epochs(2):
            for x, _y in loader:
                job.backward(model(x))
                while job.rank == job.size - 1 and not signal_file.exists():
                    time.sleep(0.01)
                optimizer.step()
                mine += 1
                if job.rank == 0 and mine == 5:
                    signal_file.touch()
        updates = job.sum([mine])[0]
        place = model.place.detach()
        ends = {"least": place.min().item(), "most": place.max().item()}
        return {**ends, "updates": updates, "rates": rates.values}


def bounded(log, staleness):
    """With a slow worker, BatchNorm, a stop in the middle and a job that goes on from there."""
    model = models.make("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = models.Images(size=150)
    options = {"global_batch": 12, "sync": "ssp", "staleness": staleness, "policy": "uniform", "log": log}
    with isochron.Job(**options) as job:
        model, optimizer = job.prepare(model, optimizer)
        for count, (x, y) in enumerate(job.loader(dataset)):
            if job.rank == 1:
                time.sleep(0.01)
            job.backward(models.loss_of(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            if count == 2 and job.rank == 1:
                job.stop()
        stopped, state = job.ledger.used, job.state_dict()
    with isochron.Job(**options) as job:
        model, optimizer = job.prepare(model, optimizer)
        job.load_state_dict(state)
        train(job, model, optimizer, dataset, 2)
        own = job.last_update.worker.id
        return {"stopped": stopped, "complete": job.ledger.complete, "own": own, "sum": values(model).sum().item()}


def as_people_write_it(num_workers):
    """One worker, asynchronously, is a plain loop: clipping, a scheduler, a scaler that meets an overflow."""
    ends = []
    for asynchronous in (True, False):
        dataset = models.Images(size=60, dtype=torch.float32)
        model = models.make("cnn", torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=20)  # moves momentum, too
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        job = None
        if asynchronous:
            job = isochron.Job(global_batch=12, sync="asp", reseed=False)
            model, optimizer, scheduler, scaler = job.prepare(model, optimizer, scheduler, scaler)
            batches = job.loader(dataset, num_workers=num_workers)
        else:
            sampler = Sampler(len(dataset), 12, 0)
            indices = [sampler.samples(first, first + 12) for first in range(0, 60, 12)]
            batches = [torch.utils.data.default_collate([dataset[one] for one in part]) for part in indices]
        for number, (x, y) in enumerate(batches):
            loss = models.loss_of(model(x), y) * (float("inf") if number == 2 else 1.0)
            if job is not None:
                job.backward(loss, scaler=scaler)
            else:
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
        if job is not None:
            assert job.ledger.complete
            job.close()
        ends.append((values(model), scaler.get_scale()))
    return {"far": (ends[0][0] - ends[1][0]).abs().max().item(), "scales": [scale for _, scale in ends]}


def not_finite_alone(options, spoil):
    """The loss of one iteration of the last rank is not finite, and `spoil` says whether its gradient is; what became
    of that."""
    model = models.make("lstm")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        with isochron.Job(global_batch=12, sync="ssp", staleness=0, **options) as job:
            model, optimizer = job.prepare(model, optimizer)
            for number, (x, y) in enumerate(job.loader(models.Text(size=60))):
                loss = models.loss_of(model(x), y)
                if job.rank == job.size - 1 and number == 1:
                    loss = loss + math.inf if spoil == "loss" else loss * math.inf
                job.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            complete = job.ledger.complete
    except isochron.NonFiniteError as error:
        return {"kind": "NonFiniteError", "words": str(error), "finite": bool(values(model).isfinite().all())}
    return {"kind": "none", "finite": bool(values(model).isfinite().all()), "complete": complete}


def words_of(call):
    try:
        call()
    except (ValueError, isochron.Error) as error:
        return str(error)
    return "nothing was raised"


def refusals():
    def job(**options):
        return isochron.Job(global_batch=12, **{"sync": "asp", **options})

    model = models.make("lstm")
    wrapped = DistributedDataParallel(models.make("lstm"))
    with job() as one:
        return [
            words_of(lambda: one.prepare(wrapped)),
            words_of(lambda: one.prepare(torch.optim.LBFGS(model.parameters()))),
            words_of(lambda: one.accumulate(2)),
            words_of(lambda: one.loader(iter(range(3)))),
            words_of(lambda: job(staleness=1)),
            words_of(lambda: job(push_rate="fast")),
            words_of(lambda: job(sync="bsp", push_rate="staleness")),
            words_of(lambda: job(momentum_correction=True).prepare(torch.optim.Adam(model.parameters()))),
        ]


def losses(log):
    """A loop that scales its losses by itself, one that says what the log says, and calls that are refused."""
    words, true = [], []
    model = models.make("lstm")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with isochron.Job(global_batch=12, sync="asp", log=log) as job:
        model, optimizer = job.prepare(model, optimizer)
        words += [words_of(job.end_epoch), words_of(lambda: job.loader(models.Text(size=48), max_steps=1))]
        for count, (x, y) in enumerate(job.loader(models.Text(size=48))):
            loss = models.loss_of(model(x), y)
            if count % 2 == 0:
                (loss * job.weight).backward()
                true.append(loss.item())
            else:
                job.backward(loss)
                job.log_loss(7.0)
                true.append(7.0)
                words.append(words_of(lambda: job.backward(loss)))
            optimizer.step()
            optimizer.zero_grad()
    return {"words": words, "true": true}


def killed(timeout):
    """The last rank kills itself in the middle of an epoch."""
    model = models.make("lstm")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = 0
    began = time.monotonic()
    try:
        with isochron.Job(global_batch=12, sync="ssp", staleness=1, timeout=timeout, elastic=False) as job:
            model, optimizer = job.prepare(model, optimizer)
            for x, y in job.loader(models.Text(size=600)):
                job.backward(models.loss_of(model(x), y))
                if job.rank == 2 and count == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                optimizer.step()
                count += 1
    except isochron.PeerError as error:
        seconds = time.monotonic() - began
        return {"kind": type(error).__name__, "ranks": error.ranks, "hosts": error.hosts, "words": str(error),
                "seconds": seconds}  # fmt: skip
    return {"kind": "none"}


def survives(log, victim, where, sync, staleness=None, size=110):
    """That rank kills itself in the first epoch; how far the others end from training in one process."""
    dataset = models.Text(size=size)
    model = models.make("lstm")
    stepper = torch.optim.SGD(model.parameters(), lr=0.05)
    options = {"sync": sync, "staleness": staleness, "policy": "uniform", "reseed": False, "log": log}
    with isochron.Job(global_batch=24, timeout=60.0, **options) as job:
        model, stepper = job.prepare(model, stepper)
        loader = job.loader(dataset)
        me, used = job.rank, []

        def die(at):
            if (me, where, job.epoch) == (victim, at, 0):
                time.sleep(0.3)  # the others have pulled
                os.kill(os.getpid(), signal.SIGKILL)

        for _ in job.epochs(2):
            for count, (x, y) in enumerate(loader):
                job.backward(models.loss_of(model(x), y))
                if count == 1:
                    die("computed")
                stepper.step()
                stepper.zero_grad()
                if count == 1:
                    die("pushed")
            used.append(job.ledger.used)
            if me == victim and where == "barrier":
                os.kill(os.getpid(), signal.SIGKILL)
        job.save(log + ".pt")
        ends = job.sum([job.ledger.complete, 1.0])
    alone = alone_after_sgd(dataset)
    return {"used": used, "ends": ends, "sum": values(model).sum().item(), "size": job.size,
            "far": (values(model) - alone).abs().max().item()}  # fmt: skip


def alone_after_sgd(dataset):
    OPTIMIZERS["plain"] = lambda parameters: torch.optim.SGD(parameters, lr=0.05)
    return alone_after("plain", dataset, 2)


def saved_out_of_step(path, optimizer, sync):
    """Two epochs, saved after the first; then the second again from the file, with `sync`."""
    ends = []
    dataset = models.Text(size=110)
    for restores in (False, True):
        model = models.make("lstm")
        stepper = OPTIMIZERS[optimizer](model.parameters())
        options = {"sync": "ssp", "staleness": 0} if sync == "ssp" or not restores else {"sync": "bsp"}
        with isochron.Job(global_batch=24, policy="static:weights=1/2", reseed=False, **options) as job:
            model, stepper = job.prepare(model, stepper)
            if restores:
                job.restore(path)
                assert job.epoch == 1
            train(job, model, stepper, dataset, 2, after=lambda epoch: job.save(path) if epoch == 0 else None)
            ends.append(values(model))
    return (ends[0] - ends[1]).abs().max().item()
