"""What the ranks of the tests of failures do; torch_cases.py hands these on."""

import contextlib
import itertools
import logging
import os
import pathlib
import shutil
import signal
import time

import torch
import torch.distributed as dist

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler
from torch_feature_cases import Sentences, small_model


def flat(model):
    import torch_cases  # it imports this file

    return torch_cases.flat(model)


def train_alone(*arguments, **options):
    import torch_cases

    return torch_cases.train_alone(*arguments, **options)


def survive(how, victim, when, steps=12, timeout=300.0, accumulate=1, holds=3, device="cpu"):
    """Trains while something happens to one rank; where the others end against one process, what they saw, and how many
    seconds went by between two batches at most."""
    events = []
    job = isochron.Job(global_batch=24, timeout=timeout, policy="static", weight=float(max(3 - dist.get_rank(), 1)),
                       on_event=events.append, reseed=False, device=device)  # fmt: skip
    model = models.make("cnn").to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = job.prepare(model, optimizer)
    me = dist.get_rank()
    seen, moments = [], []
    for x, y in job.loader(models.Images(size=24 * steps)):
        x, y = x.to(device), y.to(device)
        moments.append(time.monotonic())
        limit = holds if how == "memory" and me == victim and job.step >= when else 10**9

        def loss(x=x, y=y, limit=limit):
            output = model(x)
            if len(x) > limit:
                torch.empty(2**60)  # more than there is
            return models.loss_of(output, y)

        if me == victim and job.step == when and how in ("KILL", "STOP"):
            model(x)  # in the middle of a step
            os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
        step = job.step
        with job.accumulate(accumulate) as last:
            if job.backward(loss):
                seen.append((step, len(x)))
        if last:
            optimizer.step()
            optimizer.zero_grad()
    complete = job.ledger.complete
    members = job.size
    with contextlib.suppress(Exception):
        job.close()
    mine = flat(model).cpu()
    alone = train_alone(
        "cnn", steps, 24, torch.float64, accumulate=accumulate, dataset=models.Images(size=24 * steps)
    )
    longest = max(later - moment for moment, later in itertools.pairwise(moments))
    return {"far": (mine - alone).abs().max().item(), "complete": complete, "members": members, "seen": seen,
            "longest": longest, "events": [(event.event, event.worker) for event in events]}  # fmt: skip


def late(timeout=12.0):
    """Rank 1 stops; what rank 0 is told where nobody may be left behind."""
    job = isochron.Job(global_batch=12, timeout=timeout, elastic=False)
    model = job.prepare(small_model())
    try:
        for x, _ in job.loader(Sentences()):
            if job.rank == 1 and job.step == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            job.backward(model(x).square().mean())
    except isochron.PeerError as error:
        return {"kind": type(error).__name__, "words": str(error), "ranks": error.ranks, "hosts": error.hosts}
    return None


def own_error():
    """A loop whose own error sounds like gloo's; how often it was computed, and what came out."""
    calls = []
    job = isochron.Job(global_batch=12)
    model = job.prepare(small_model())

    def loss(x):
        calls.append(job.step)
        if job.step == 2:
            raise RuntimeError("gloo: connection reset by peer, says my own code; timed out waiting")
        return model(x).square().mean()

    try:
        for x, _ in job.loader(Sentences()):
            job.backward(lambda x=x: loss(x))
    except RuntimeError as error:
        return {"kind": type(error).__name__, "words": str(error), "calls": calls}
    return {"kind": "none", "calls": calls}


class Spoiled(models.Images):
    """Fails at some of its samples, on whichever worker."""

    def __init__(self, size, bad):
        super().__init__(size=size)
        self.bad = bad

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError(f"no picture at {index}")
        return super().__getitem__(index)


def spoiled(bad, on_bad_sample, num_workers=0, accumulate=1, log=None, steps=6):
    """Trains; how far it ends from one process that leaves those samples out, and what was said."""
    events = []
    dataset = Spoiled(24 * steps, bad)
    weight = {"weight": 3.0 - dist.get_rank()} if dist.is_initialized() else {}
    job = isochron.Job(global_batch=24, policy="static", **(weight or {"weight": 1.0}), on_event=events.append,
                       reseed=False, on_bad_sample=on_bad_sample, log=log)  # fmt: skip
    model = models.make("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = job.prepare(model, optimizer)
    try:
        for x, y in job.loader(dataset, num_workers=num_workers):
            with job.accumulate(accumulate) if accumulate > 1 else contextlib.nullcontext(True) as last:
                job.backward(lambda x=x, y=y: models.loss_of(model(x), y))
            if last:
                optimizer.step()
                optimizer.zero_grad()
    except isochron.Error as error:
        return {"kind": type(error).__name__, "words": str(error), "sample": getattr(error, "sample", None)}
    complete, size = job.ledger.complete, job.size
    job.close()
    alone = models.make("cnn")
    stepper = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    sampler = Sampler(24 * steps, 24, 0)
    for group in range(0, steps, accumulate):
        batches = []
        for step in range(group, group + accumulate):
            indices = sampler.samples(24 * step, 24 * step + 24)
            batches.append([models.Images.__getitem__(dataset, one) for one in indices if one not in bad])
        total = sum(map(len, batches))
        for batch in batches:
            x, y = torch.utils.data.default_collate(batch)
            (models.loss_of(alone(x), y) * (len(batch) / total)).backward()
        stepper.step()
        stepper.zero_grad()
    return {"kind": "none", "complete": complete, "size": size,
            "far": (flat(model) - flat(alone)).abs().max().item(),
            "events": [(event.event, event.words) for event in events]}  # fmt: skip


def skipping_refused():
    words = []

    def note(call):
        try:
            call()
        except ValueError as error:
            words.append(str(error))

    note(lambda: isochron.Job(global_batch=4, on_bad_sample="ask"))
    note(lambda: isochron.Job(global_batch=4, on_bad_sample="skip", sync="asp"))
    options = isochron.JobOptions(global_batch=4, on_bad_sample="skip")
    note(lambda: options.check_skipping(2, elastic=False))
    options.check_skipping(1, elastic=False)
    options.check_skipping(2, elastic=True)
    with isochron.Job(global_batch=4, on_bad_sample="skip") as job:
        note(lambda: job.loader(iter(range(3))))
    return words


def spoiled_out_of_step(bad):
    """What a worker of an asynchronous job is told of a sample that fails, wherever it does."""
    model = models.make("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    try:
        with isochron.Job(global_batch=24, sync="asp", timeout=60.0) as job:
            model, optimizer = job.prepare(model, optimizer)
            for x, y in job.loader(Spoiled(144, bad)):
                job.backward(models.loss_of(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
    except isochron.Error as error:
        return str(error)
    return "nothing"


def survive_twice(victim, second, moment, when=4, timeout=300.0):
    """One rank is lost in a step, and a second one at a moment of the recovery from that."""
    from isochron.torch.parallel import Models
    from isochron.torch.world import World

    if dist.get_rank() == second:
        places = {
            "groups": (World, "_make_groups", "before"),
            "between groups": (dist, "new_group", "after"),
            "connected": (World, "_make_groups", "after"),
            "rebuilding": (Models, "take_up", "before"),
        }
        holder, name, order = places[moment]
        original = getattr(holder, name)

        def dying(*arguments, **options):
            later = armed and (name != "new_group" or len(options.get("ranks", [0])) > 1)
            if later and order == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **options)
            if later:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        armed = []
        setattr(holder, name, dying)
        re_form = World.re_form

        def arm(*arguments, **options):
            armed.append(True)
            return re_form(*arguments, **options)

        World.re_form = arm
    return survive("KILL", victim, when, timeout=timeout)


def lost_in_transfer(when=4):
    """Rank 1 misses the reports of a step and is behind; rank 2 is lost while the state is on its way to rank 1."""
    from isochron.torch.job import Job
    from isochron.torch.world import World

    finish, broadcast = Job.finish_step, World.broadcast_state
    rank = dist.get_rank()

    def missing(job):
        if rank == 1 and job.step == when and job._exchange is not None:
            def lost():
                raise isochron.PeerLostError("a connection failed")

            job._exchange = lost
        finish(job)

    def dying(world, value, source):
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return broadcast(world, value, source)

    Job.finish_step, World.broadcast_state = missing, dying
    return survive("nothing", -1, when, timeout=60.0)


def fill(filler):
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))


@contextlib.contextmanager
def listening():
    """To what the job says in its log of messages."""
    said = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("isochron").addHandler(listener)
    yield said
    logging.getLogger("isochron").removeHandler(listener)


def full_disk(folder, full, free, steps=40, killed=None, gone=False):
    """Trains while nobody can write to the log's disk from step `full` to step `free`; the first worker may be killed
    meanwhile, and the log's folder be gone then. How far the survivors come, and what they are warned of."""
    me, first = dist.get_rank(), 0 if killed is None else 1  # who is there to the end
    filler = pathlib.Path(folder) / "filler"
    job = isochron.Job(global_batch=24, policy="static", weight=1.0, reseed=False, log=f"{folder}/run.jsonl")
    model = models.make("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = job.prepare(model, optimizer)
    with listening() as said:
        for x, y in job.loader(models.Images(size=24 * steps)):
            if me == 0 and job.step == full:
                fill(filler)
            if me == first and job.step == free:
                filler.unlink()
            if me == 0 and job.step == killed:
                if gone:
                    shutil.rmtree(folder)
                os.kill(os.getpid(), signal.SIGKILL)
            if job.backward(lambda x=x, y=y: models.loss_of(model(x), y)):
                optimizer.step()
                optimizer.zero_grad()
        step, complete = job.step, job.ledger.complete
        job.close()
    return {"step": step, "complete": complete, "said": said}


def lost_at_a_save(folder, late):
    """Rank 1 is lost between the third step and the save after it. Rank `late` hears of that while it finishes the
    step, the other one within save(); how long both took, and what is there."""
    began = time.monotonic()
    job = isochron.Job(global_batch=24, timeout=120.0, policy="uniform", reseed=False)
    model = models.make("cnn")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    world, me = job._world, dist.get_rank()
    lost, start_gather = world.members[1], world.start_gather

    def start(values):
        step, wait = job.step, start_gather(values)

        def wait_and_hear():
            rows = wait()
            if step == 2 and me == late:
                while not world._rendezvous.has_ended(lost):
                    time.sleep(0.01)
                raise isochron.PeerLostError("telemetry: lost rank 1", [1], [lost.host])
            return rows

        return wait_and_hear

    world.start_gather = start
    path = pathlib.Path(folder) / "job.pt"
    for x, y in job.loader(models.Images(size=24 * 6)):
        step = job.step
        job.backward(models.loss_of(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        if step == 2:
            if me == 1:
                job.finish_step()
                os._exit(1)
            job.save(path)
            there = path.exists() or me != 0
    return {"step": job.step, "complete": job.ledger.complete, "size": job.size, "there": there,
            "seconds": time.monotonic() - began}  # fmt: skip


def lost_between_epochs(late):
    """Rank 1 is lost when all have compared the new object that each epoch has for a dataset; rank `late` hears of that
    in the comparison, the other one in the step after it."""
    began = time.monotonic()
    job = isochron.Job(global_batch=24, timeout=120.0, policy="uniform", reseed=False)
    model = models.make("cnn")
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    world, me = job._world, dist.get_rank()
    lost, gather_words = world.members[1], world.gather_words

    def gather(value):
        values = gather_words(value)
        if me == late and job.epoch == 1 and world.size == 3:
            while not world._rendezvous.has_ended(lost):
                time.sleep(0.01)
            raise isochron.PeerLostError("words: lost rank 1", [1], [lost.host])
        return values

    world.gather_words = gather
    complete = []
    for epoch in job.epochs(3):
        loader = job.loader(models.Images(size=24 * 3))
        if me == 1 and epoch == 1:
            os._exit(1)
        for x, y in loader:
            job.backward(models.loss_of(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        complete.append(job.ledger.complete)
    return {"step": job.step, "complete": complete, "size": job.size, "seconds": time.monotonic() - began}


def second_log_on_a_full_disk(folder):
    """A dataset after another one, whose log finds no room to begin in; then the first one again."""
    job = isochron.Job(global_batch=24, policy="uniform", reseed=False, timeout=60.0, log=f"{folder}/run.jsonl")
    model = models.make("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = job.prepare(model, optimizer)
    filler = pathlib.Path(folder) / "filler"
    with listening() as said:
        for name in ("before", "after", "before", "after"):
            if job.step == 3 and job.rank == 0:
                fill(filler)
            if job.step == 6 and job.rank == 0:
                filler.unlink()
            for x, y in job.loader(models.Images(size=72), name=name):
                job.backward(models.loss_of(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
        step = job.step
        job.close()
    return {"step": step, "said": said}
