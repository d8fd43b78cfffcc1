"""What the ranks of the tests of numbers that are not finite, and of checkpoints, do; torch_cases.py hands these on."""

import contextlib
import math

import torch
from torch import nn

import isochron.torch as isochron
from torch_feature_cases import Numbers, Sentences, small_model


def with_statistics():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()


def model_for(what):
    """The backward pass of BatchNorm over the global batch takes a gradient that is not finite to all workers."""
    return small_model() if what == "gradient" else with_statistics()


def flat(model, optimizer):
    tensors = [*model.parameters(), *model.buffers(), *(one["momentum_buffer"] for one in optimizer.state.values())]
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


class Steep(torch.autograd.Function):
    """Finite, but its gradient is not."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * math.inf


def not_finite(numbers, what, path=None, accumulate=1, victim=1, when=2, log=None):
    """Trains while the loss or the gradient of one rank is not finite in one step; what became of that."""
    options = {} if numbers is None else {"on_nonfinite": numbers}
    events, stepped = [], []
    job = isochron.Job(global_batch=12, policy="static:weights=1/3", log=log, on_event=events.append, **options)
    model = model_for(what)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = job.prepare(model, optimizer)
    before = {}
    result = {"kind": "none"}
    try:
        for x, _ in job.loader(Sentences()):
            step = job.step
            if accumulate == 1 or step % accumulate == 0:
                before[step] = flat(model, optimizer)
            with job.accumulate(accumulate) if accumulate > 1 else contextlib.nullcontext(True) as last:
                output = model(x[:, 0])
                loss = output.square().mean()
                if step == when and job.rank == victim:
                    loss = {"loss": loss * math.nan, "offset": loss + math.inf, "gradient": Steep.apply(loss)}[what]
                job.backward(loss)
            if last:
                optimizer.step()
                optimizer.zero_grad()
                stepped.append(step)
    except isochron.NonFiniteError as error:
        now = flat(model, optimizer)
        result = {"kind": "NonFiniteError", "words": str(error), "as_before": torch.equal(now, before[job.step])}
        if path is not None:
            job.save(path)
            job.restore(path)
            result["restored"] = torch.equal(flat(model, optimizer), before[job.step])
    finite = bool(flat(model, optimizer).isfinite().all())
    result |= {"step": job.step, "used": job.ledger.used, "finite": finite, "stepped": stepped,
               "events": [(one.event, one.words) for one in events]}  # fmt: skip
    job.close()
    return result


def two_optimizers():
    """The gradient of the second one's parameters alone is not finite; whether anything has changed."""
    job = isochron.Job(global_batch=12)
    model = small_model()
    model[2].weight.register_hook(lambda gradient: gradient * (math.inf if job.step == 1 else 1.0))
    optimizers = [torch.optim.SGD(model[number].parameters(), lr=0.1, momentum=0.9) for number in (0, 2)]
    model, *_ = job.prepare(model, *optimizers)
    before = []
    try:
        for x, _ in job.loader(Sentences()):
            before = [one.detach().clone() for one in model.parameters()]
            job.backward(model(x).square().mean())
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    except isochron.NonFiniteError:
        return job.step, all(map(torch.equal, before, model.parameters()))
    return None


def unprepared(numbers):
    """Where the job does not see the optimizer, the loss tells, afterwards."""
    job = isochron.Job(global_batch=12, on_nonfinite=numbers)
    model = job.prepare(small_model())
    try:
        for x, _ in job.loader(Sentences()):
            job.backward(model(x).square().mean() * (math.nan if job.rank == 1 else 1.0))
    except isochron.NonFiniteError as error:
        return str(error)
    return "nothing"


def short_ledger():
    """Goes on from a state whose ledger lacks some samples of the epoch."""
    job = isochron.Job(global_batch=10)
    model = job.prepare(small_model(torch.float32))
    for number, entry in enumerate(job.loader(Numbers(30))):
        job.backward(model(entry["noise"]).mean())
        if number == 1:
            break
    saved = job.state_dict()
    job.close()
    name = "replica" if "replica" in saved else "ledger"
    used = "used 0p+0 1.4p+4\n"
    assert used in saved[name]
    saved[name] = saved[name].replace(used, "used 0p+0 1.2p+4\n")  # 18 of 20
    job = isochron.Job(global_batch=10)
    model = job.prepare(small_model(torch.float32))
    job.load_state_dict(saved)
    try:
        for entry in job.loader(Numbers(30)):
            job.backward(model(entry["noise"]).mean())
        job.finish_step()
    except isochron.InvariantError as error:
        return str(error)
    return "nothing"


def sync_points():
    """How often the controller believes that ranks wait in a step in which one waits five times, the other once."""
    from isochron._core import read_reports

    told = []
    job = isochron.Job(global_batch=12)
    gather = job._world.start_gather

    def listen(values):
        wait = gather(values)

        def rows():
            told.append(wait())
            return told[-1]

        return rows

    job._world.start_gather = listen
    model = job.prepare(small_model())
    for x, _ in job.loader(Sentences(24)):
        job._world.waits.count += 4 if job.rank == 0 else 0
        job.backward(model(x).square().mean())
    job.close()
    return [[report.sync_points for report in read_reports(rows.numpy().tobytes())] for rows in told]


def from_before(saved):
    """Goes on from what state_dict() returned before jobs shared the native step protocol."""
    job = isochron.Job(global_batch=10, policy="static", weight=1.0)
    model = job.prepare(small_model(torch.float32))
    job.load_state_dict(saved)
    place = job.step, job.epoch, job.batch_sizes, [worker.id for worker in job._replica.workers]
    seen = []
    for entry in job.loader(Numbers(30)):
        seen += [] if job._share.stand_in else entry["number"].tolist()
        job.backward(model(entry["noise"]).mean())
    complete = job.ledger.complete
    job.close()
    return {"place": place, "seen": seen, "complete": complete}


def state_of_nothing():
    with isochron.Job(global_batch=10) as job:
        try:
            job.load_state_dict({"version": "9.9", "something": "else"})
        except ValueError as error:
            return str(error)
    return "nothing"
