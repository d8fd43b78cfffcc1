"""What a rank of a PyTorch job does while a fault strikes one of them: trains a small model, saves, evaluates, stops.

The nursery of tests/python imports this file and runs tried() in every rank.
"""

import functools
import os
import pathlib
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

import isochron.torch as isochron
from isochron.torch.local_job import LocalModels
from isochron.torch.trace import Trace
from isochron.torch.world import World

STEPS, BATCH, WHEN = 8, 24, 3
SAMPLES = STEPS * BATCH


class Points(torch.utils.data.Dataset):
    """Numbers that are the same everywhere, of which one may fail to load."""

    def __init__(self, bad=None):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
        self.y = (self.x.sum(1) > 0).long()
        self.bad = bad

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if index == self.bad:
            raise ValueError(f"no sample at {index}")
        return self.x[index], self.y[index]


def make():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class Striker:
    """Does the fault once, when the phase is reached in the worker that it is meant for."""

    def __init__(self, phase, fault, folder=None):
        self.phase, self.fault, self.folder, self.done = phase, fault, folder, False

    def __call__(self, phase):
        if phase != self.phase or self.done:
            return
        self.done = True
        if self.folder:
            (self.folder / "struck").write_text(str(time.monotonic()))
        if self.fault in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if self.fault == "kill" else signal.SIGSTOP)
        elif self.fault == "exit":
            os._exit(0)
        elif self.fault == "error":
            raise KeyError("my own mistake")
        elif self.fault == "interrupt":
            raise KeyboardInterrupt
        elif self.fault == "memory":
            torch.empty(2**60)
        elif self.fault == "disk":
            raise OSError(28, "No space left on device")


def armed(strike, patched):
    """`strike` in the middle of what lies inside of the package or of torch: (holder, name, phase)."""
    for holder, name, phase in patched:
        original = getattr(holder, name)

        def struck(*arguments, original=original, phase=phase, **options):
            strike(phase)
            return original(*arguments, **options)

        setattr(holder, name, struck)


def loss_of(model, x, y, strike):
    loss = nn.functional.cross_entropy(model(x), y)
    if strike.fault == "nan":  # every time that this step is computed
        if strike.phase == "reduction":
            loss.register_hook(lambda gradient: gradient * float("nan"))
        return loss * float("nan") if strike.phase == "step" else loss
    if strike.phase == "reduction":  # while the others' gradients are on their way
        loss.register_hook(lambda gradient: strike("reduction"))
    strike("step")
    return loss


def tried(sync, phase, fault, victim, folder, timeout, first_lost=None, **options):
    """What became of the job here: its kind of end, and what it holds."""
    rank, folder = dist.get_rank(), pathlib.Path(folder)
    strike = Striker(phase if rank == victim else None, fault, folder)
    lost = Striker("step" if rank == first_lost else None, "kill")  # so that the others have to re-form
    answer = outcome(sync, phase, strike, lost, folder, timeout, **options)
    threading.Timer(0.3, os._exit, (0,)).start()  # when the tests have the answer
    return {**answer, "moment": time.monotonic()}


def outcome(sync, phase, strike, *arguments, **options):
    try:
        return train(sync, phase, strike, *arguments, **options)
    except isochron.SampleError as error:
        return {"end": "sample", "words": str(error), "sample": error.sample}
    except isochron.NonFiniteError as error:
        return {"end": "numbers", "words": str(error)}
    except isochron.PeerError as error:
        return {"end": "named", "words": str(error), "ranks": error.ranks}
    except (Exception, KeyboardInterrupt) as error:
        if strike.done:  # a script ends with its error, and its connections with it
            os._exit(1)
        return {"end": "error", "words": f"{type(error).__name__}: {error}"}


def values_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()


def train(sync, phase, strike, lost, folder, timeout, bad=None, left_out=None, **options):
    """`left_out`: a step that the optimizer does not take, as where its gradient was not finite."""
    strike("rendezvous")
    saved = folder / "saved"
    saved.mkdir(exist_ok=True)
    events = []
    job = isochron.Job(global_batch=BATCH, sync=sync, timeout=timeout, reseed=False, on_event=events.append,
                       **{"ssp": {"staleness": 1}, "local": {"round_steps": 2}}.get(sync, {}), **options)  # fmt: skip
    model, optimizer = make()
    model, optimizer = job.prepare(model, optimizer)
    armed(strike, [(World, "re_form", "join"), (torch, "save", "checkpoint"), (Trace, "step", "record")])
    averages = sync == "local" and phase == "reduction"  # when a round ends
    if averages:
        armed(strike, [(LocalModels, "average_changes", "reduction")])
    nothing, count, course = Striker(None, None), 0, []
    for x, y in job.loader(Points(bad)):
        # Out of step a worker may get one batch only; in rounds it is the second local step of the second one.
        now = job.step == WHEN if sync == "bsp" else count == (WHEN if sync == "local" else 0)
        here = strike if now and not averages else nothing
        if now:
            lost("step")
        loss = functools.partial(loss_of, model, x, y, here)
        job.backward(loss if sync == "bsp" else loss())
        here("optimizer")
        if job.step == left_out:
            optimizer.zero_grad(set_to_none=True)
        optimizer.step()
        optimizer.zero_grad()
        count += 1
        if phase == "undisturbed":
            course.append(values_of(model))
        if sync == "bsp" and now and phase == "checkpoint":
            if not job.is_first:  # the first worker is struck while it writes
                here("checkpoint")
            job.save(saved / "job.pt")
        if sync == "bsp" and now and phase == "evaluation":
            here("evaluation")
            job.sum([1.0])
        if now and phase == "leave":
            job.stop()
            here("leave")
    complete = job.ledger.complete
    if sync != "bsp" and phase == "evaluation":
        strike("evaluation")
        job.sum([1.0])
    if sync != "bsp" and phase == "checkpoint":
        if not job.is_first:
            strike("checkpoint")
        job.save(saved / "job.pt")
    result = {"end": "on", "complete": complete, "size": job.size, "step": job.step,
              "events": [event.event for event in events],
              "values": values_of(model), "course": course,
              "files": sorted(path.name for path in saved.iterdir())}  # fmt: skip
    strike("end")
    job.close()
    return result
