"""What the ranks of the tests of local rounds do; torch_cases.py hands these on."""

import contextlib
import copy
import os
import pathlib
import signal
import time
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler
from isochron.torch import world
from isochron.torch.sealed import SealedStore
from torch_failure_cases import flat, listening

BATCH = 24


def batch_of(dataset, sampler, first, last):
    return torch.utils.data.default_collate([dataset[index] for index in sampler.samples(first, last)])


def train_in_rounds(name, dataset, rounds, momentum, outer):
    """In one process, as written in docs/local.md: `rounds` says for each how many local steps it has and how many
    samples each of its workers takes in one of them, by worker. Parameters and buffers afterwards."""
    model = models.make(name)
    optimizers = {}  # the state of every worker's, which stays its own
    velocity = [torch.zeros_like(one) for one in model.parameters()]
    sampler, position = Sampler(len(dataset), BATCH, 0), 0
    for steps, sizes in rounds:
        start, total = copy.deepcopy(model), steps * sum(sizes.values())
        changes = [torch.zeros_like(one) for one in model.parameters()]
        means = [torch.zeros_like(one, dtype=torch.float64) for one in model.buffers()]
        for worker, size in sizes.items():
            mine = copy.deepcopy(start)
            optimizer = torch.optim.SGD(mine.parameters(), lr=0.05, momentum=momentum)
            if worker in optimizers:
                optimizer.load_state_dict(optimizers[worker])
            for _ in range(steps):
                x, y = batch_of(dataset, sampler, position, position + size)
                models.loss_of(mine(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                position += size
            optimizers[worker] = copy.deepcopy(optimizer.state_dict())
            share = steps * size / total
            with torch.no_grad():
                for change, one, before in zip(changes, mine.parameters(), start.parameters()):
                    change += share * (before - one)
                for mean, one in zip(means, mine.buffers()):
                    mean += share * one.double()
        with torch.no_grad():
            for one, before, change, speed in zip(model.parameters(), start.parameters(), changes, velocity):
                if outer == "nesterov":
                    speed.mul_(0.9).add_(change)
                    change = 0.7 * (change + 0.9 * speed)
                one.copy_(before - change)
            for one, mean in zip(model.buffers(), means):
                one.copy_(mean if one.is_floating_point() else mean.round())
    return flat(model)


def make_job(weight, events=None, **options):
    on_event = events.append if events is not None else None
    job = isochron.Job(global_batch=BATCH, sync="local", policy="static", weight=weight, reseed=False,
                       on_event=on_event, **options)  # fmt: skip
    return job


def rounds_alone(name="cnn", steps=8, momentum=0.9, outer="average", round_steps=3, processes=0):
    """Two workers of weights 1 and 2, so 8 and 16 samples a step, against train_in_rounds()."""
    dataset = models.Images(size=BATCH * steps) if name == "cnn" else models.Text(size=BATCH * steps)
    job = make_job(1.0 + dist.get_rank(), round_steps=round_steps, outer=outer)
    model = models.make(name)
    start = flat(model)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum))
    sizes = []
    loader = job.loader(dataset, num_workers=processes)
    for x, y in loader:
        sizes.append(len(x))
        job.backward(models.loss_of(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    complete, mine, length = job.ledger.complete, flat(model), len(loader)
    records = job.step
    job.close()
    lengths = [round_steps] * (steps // round_steps) + ([steps % round_steps] if steps % round_steps else [])
    expected = train_in_rounds(name, dataset, [(one, {0: 8, 1: 16}) for one in lengths], momentum, outer)
    return {"far": (mine - expected).abs().max().item(), "went": (mine - start).abs().max().item(), "sizes": sizes,
            "complete": complete, "sum": mine.sum().item(), "length": length, "rounds": records}  # fmt: skip


def train_briefly(sync, kind, options):
    dataset = models.Text(size=BATCH * 6 + 7)
    shared = {"global_batch": BATCH, "policy": "static", "weight": 1.0 + dist.get_rank(), "reseed": False}
    job = isochron.Job(sync=sync, **shared, **options)
    model = models.make("gpt2")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    for x, y in job.loader(dataset):
        if kind == "sum":
            job.backward(models.loss_of(model(x), y) * len(x), reduction="sum")
        elif kind == "count":  # what the loss is the mean over is another number than the samples
            job.backward(models.loss_of(model(x), y), count=float(len(x) + 5 * (dist.get_rank() + 1)))
        elif kind == "weight":
            (models.loss_of(model(x), y) * job.weight).backward()
        elif kind == "parts":
            job.backward(lambda x, y: models.loss_of(model(x), y), x, y)
        else:
            job.backward(models.loss_of(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    loss = job.last_step.loss
    job.close()
    return flat(model), loss


def local_against_bsp(kind="mean", weighting="exact"):
    """Rounds of one step of plain SGD; and how far bsp went."""
    start = flat(models.make("gpt2"))
    extra = {"micro_batch": 5} if kind == "parts" else {}
    bsp, bsp_loss = train_briefly("bsp", kind, extra)
    local, local_loss = train_briefly("local", kind, {"round_steps": 1, "weighting": weighting, **extra})
    return {"far": (local - bsp).abs().max().item(), "went": (bsp - start).abs().max().item(),
            "losses": abs(bsp_loss - local_loss), "sum": local.sum().item()}  # fmt: skip


def lost_in_a_round(how, victim=1, when=1, batch=1, round_steps=3, steps=9, momentum=0.9, log=None, timeout=300.0):
    """Three workers of weights 3, 2 and 1; one is lost at a batch of a round, and those who are left do it again."""
    events, me = [], dist.get_rank()
    job = make_job(3.0 - me, events, round_steps=round_steps, outer="nesterov", log=log, timeout=timeout)
    model = models.make("cnn")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum))
    scheduler = job.prepare(torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0))
    dataset = models.Images(size=BATCH * steps)
    seen, taken = [], 0
    for x, y in job.loader(dataset):
        taken = taken + 1 if seen and seen[-1][0] == job.step else 0
        seen.append((job.step, len(x)))
        if me == victim and job.step == when and taken == batch:
            if how == "exchange":
                job._models.average_changes = lambda weight: os.kill(os.getpid(), signal.SIGKILL)
            else:
                os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
        job.backward(models.loss_of(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    complete, members, counted = job.ledger.complete, job.size, scheduler.last_epoch
    with contextlib.suppress(Exception):
        job.close()
    left = {rank: size for rank, size in {0: 18, 2: 6}.items()}  # 3 : 1 of 24
    before = [(round_steps, {0: 12, 1: 8, 2: 4})] * when
    rounds = before + [(round_steps, left)] * (steps // round_steps - when)
    expected = train_in_rounds("cnn", dataset, rounds, momentum, "nesterov")
    return {"far": (flat(model) - expected).abs().max().item(), "complete": complete, "members": members, "seen": seen,
            "events": [(event.event, event.worker) for event in events], "counted": counted}  # fmt: skip


def memory_in_a_round(holds=6, round_steps=4, pace=0.0, timeout=300.0):
    """Rank 1 holds no more than so many samples at a time; it begins with 12. Until it says so, rank 0 takes `pace`
    seconds for each of its local steps."""
    events, me = [], dist.get_rank()
    job = make_job(1.0, events, round_steps=round_steps, timeout=timeout)
    model = models.make("gpt2")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    largest = []
    for x, y in job.loader(models.Text(size=BATCH * 16)):
        if me == 0 and not events:
            time.sleep(pace)

        def loss(x=x, y=y):
            if me == 1 and len(x) > holds:
                torch.empty(2**60)  # more than there is
            return models.loss_of(model(x), y)

        if job.backward(loss):
            largest.append(len(x))
        optimizer.step()
        optimizer.zero_grad()
    result = {"complete": job.ledger.complete, "last": largest[-1], "sum": flat(model).sum().item(),
              "events": {event.event for event in events}}  # fmt: skip
    job.close()
    return result


def saved_between_rounds(path, outer="nesterov"):
    """Six epochs of two rounds in one go, and three with a checkpoint in between."""
    dataset = models.Text(size=BATCH * 4)

    def train(epochs, restore=None, save=None):
        job = make_job(1.0 + dist.get_rank(), round_steps=2, outer=outer)
        model = models.make("gpt2")
        model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
        if restore:
            job.restore(restore)
        for _ in job.epochs(epochs):
            for x, y in job.loader(dataset):
                job.backward(models.loss_of(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
        if save:
            job.save(save)
        job.close()
        return flat(model)

    whole = train(6)
    train(3, save=path)
    return (train(6, restore=path) - whole).abs().max().item()


def not_finite_in_a_round(on_nonfinite):
    """The loss of rank 1 is not finite at one batch of the second of four rounds."""
    events = []
    job = make_job(1.0, events, round_steps=2, on_nonfinite=on_nonfinite)
    model = models.make("gpt2")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    before, taken, error = None, 0, ""
    try:
        for x, y in job.loader(models.Text(size=BATCH * 8)):
            if job.step == 1 and before is None:
                before = flat(model), copy.deepcopy(optimizer.state_dict()["state"])
            if job.step == 2 and taken == 4:
                after = flat(model), copy.deepcopy(optimizer.state_dict()["state"])
            loss = models.loss_of(model(x), y)
            taken += 1
            job.backward(loss * float("nan") if taken == 3 and job.rank == 1 else loss)
            optimizer.step()
            optimizer.zero_grad()
    except isochron.NonFiniteError as raised:
        error = str(raised)
        after = flat(model), copy.deepcopy(optimizer.state_dict()["state"])
    same = all(torch.equal(one["momentum_buffer"], before[1][key]["momentum_buffer"]) for key, one in after[1].items())
    finite = bool(flat(model).isfinite().all())
    result = {"moved": (after[0] - before[0]).abs().max().item(), "optimizer": same, "error": error, "finite": finite,
              "events": [event.event for event in events], "rounds": job.step}  # fmt: skip
    if not error:
        job.close()
    return result


def without_a_store(folder):
    """The store is lost within a round, and there is a look at the others before its next local step. How far the job
    comes."""
    folder = pathlib.Path(folder)
    job = make_job(1.0, round_steps=4)
    model = models.make("gpt2")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    with mock.patch.object(world, "LOOK_SECONDS", 0.0), listening() as said:
        for taken, (x, y) in enumerate(job.loader(models.Text(size=BATCH * 12))):
            if taken == 5:
                (folder / f"here.{job.rank}").touch()
                while not (folder / "lost").exists():
                    time.sleep(0.05)
                job._world._next_look = 0.0  # however long the last one took
            job.backward(models.loss_of(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    return {"rounds": job.step, "complete": job.ledger.complete, "said": said}


def looked_at_others():
    """What a look asks the store, which is slow to answer; between two exchanges many are called for."""
    job, asked, get = make_job(1.0), [], SealedStore.get

    def slow(store, name):
        asked.append(name)
        time.sleep(0.1)
        return get(store, name)

    with mock.patch.object(world, "LOOK_SECONDS", 0.0), mock.patch.object(SealedStore, "get", slow):
        for _ in range(20):
            job._world.look_after_others()
    job.close()
    return asked


def chosen_rounds(log=None):
    """Exchanges take as long as ten local steps; how long rounds become, by their numbers."""
    job = make_job(1.0, log=log, network_share=0.25)
    model = models.make("gpt2")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    average = job._models.average_changes

    def slow(weight):
        time.sleep(0.2)
        average(weight)

    job._models.average_changes = slow
    lengths = {}
    for x, y in job.loader(models.Text(size=BATCH * 200), max_steps=150):
        lengths[job.step] = job.round_steps
        time.sleep(0.02)
        job.backward(models.loss_of(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    batches = sum(lengths.values())
    job.close()
    return list(lengths.values()), batches


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(1)


def refused_in_rounds():
    """What a job with rounds says to what it cannot do."""
    words = []

    def note(action):
        try:
            action()
            words.append("nothing")
        except (ValueError, isochron.Error) as error:
            words.append(str(error))

    note(lambda: isochron.Job(global_batch=8, round_steps=4))
    note(lambda: isochron.Job(global_batch=8, sync="local", staleness=2))
    note(lambda: isochron.Job(global_batch=8, sync="local", warmup_steps=3))
    note(lambda: isochron.Job(global_batch=8, sync="local", on_bad_sample="skip"))
    note(lambda: isochron.Job(global_batch=8, sync="local", network_share=2.0))
    note(lambda: isochron.Job(global_batch=8, sync="local", ddp={"bucket_cap_mb": 1}))
    job = isochron.Job(global_batch=8, sync="local", round_steps=4)
    note(lambda: job.loader(Endless()))
    note(lambda: job.loader(models.Text(), lengths=[1] * 600))
    model = models.make("gpt2")
    if dist.is_initialized():
        note(lambda: job.prepare(DistributedDataParallel(models.make("gpt2"))))
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    note(lambda: job.prepare(AveragedModel(model)))
    for x, y in job.loader(models.Text(size=8 * 4)):
        note(lambda: job.accumulate(2))
        job.backward(models.loss_of(model(x), y))
        optimizer.step()
        note(job.state_dict)
        note(job.end_epoch)
        break
    start = flat(models.make("gpt2"))
    job.close()  # the round is not finished, so it did not happen
    return words, (flat(model) - start).abs().max().item()
