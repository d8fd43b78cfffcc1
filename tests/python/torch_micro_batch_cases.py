"""What the ranks of the tests of micro-batches do; torch_cases.py hands these on."""

import torch
import torch.distributed as dist
from torch import nn

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler, read_reports
from torch_async_cases import OPTIMIZERS, alone_after, values
from torch_feature_cases import Sentences, small_model, token_losses


def in_micro_batches(name="gpt2", mode="plain", steps=12, batch=24):
    """Rank 0 computes its 8 samples at once, rank 1 its 16 in micro-batches of 5: where training ends against one
    process, and what the loss function was called with."""
    import torch_cases  # it imports this file

    rank = dist.get_rank()
    accumulate = 2 if mode == "accumulate" else 1
    model = torch_cases.wrap(models.make(name, torch.float64), mode)
    optimizer = torch_cases.optimizer_of(model)
    job = isochron.Job(global_batch=batch, policy="static", weight=1.0 + rank, reseed=False,
                       micro_batch=5 * rank)  # fmt: skip
    model, optimizer = job.prepare(model, optimizer)
    called = []

    def loss_of(x, y):
        called.append(len(x))
        return models.loss_of(model(x), y)

    for x, y in job.loader(models.data(name, torch.float64), max_steps=steps):
        with job.accumulate(accumulate) as last:
            job.backward(loss_of, x, y)
        if last:
            optimizer.step()
            optimizer.zero_grad()
    job.finish_step()
    job.close()
    alone = torch_cases.train_alone(name, steps, batch, torch.float64, accumulate=accumulate)
    start = torch_cases.flat(models.make(name, torch.float64))
    return {"far": (torch_cases.flat(model) - alone).abs().max().item(), "went": (alone - start).abs().max().item(),
            "called": called}  # fmt: skip


def gradients_of_micro_batches(mode):
    """The gradient of the first step, in micro-batches of 4 on rank 1 and at once on rank 0, and of one process:
    largest difference and size; the loss that the job noted and the true one."""
    data, batch = Sentences(), 12
    rank = dist.get_rank()
    job = isochron.Job(global_batch=batch, policy="static", weight=1.0 + 2 * rank, micro_batch=4 * rank)
    model = job.prepare(small_model())

    def mean(x, length):
        return token_losses(model, x, length).mean()

    def total(x, length):
        return token_losses(model, x, length).sum()

    def tokens(x, length):
        return length.sum()

    for x, length in job.loader(data):
        if mode == "sum":
            job.backward(total, x, length, reduction="sum")
        else:
            job.backward(mean, x, length, count=tokens)
        break
    job.finish_step()
    noted = job.last_step.loss
    mine = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    x, length = torch.utils.data.default_collate([data[index] for index in Sampler(len(data), batch).samples(0, batch)])
    alone = small_model()
    losses = token_losses(alone, x, length)
    loss = losses.sum() if mode == "sum" else losses.mean()
    loss.backward()
    theirs = torch.cat([parameter.grad.flatten() for parameter in alone.parameters()])
    job.close()
    true = loss.item() / (batch if mode == "sum" else 1)
    return {"far": (mine - theirs).abs().max().item(), "size": theirs.abs().max().item(), "noted": noted, "true": true}


def too_little_memory(holds, steps=6, batch=24, micro_batch=0, max_batch=0):
    """The last rank's memory holds `holds` samples at a time; nobody else may take more than `max_batch`."""
    import torch_cases

    alone = not dist.is_initialized()
    victim = alone or dist.get_rank() == dist.get_world_size() - 1
    events, called = [], []
    job = isochron.Job(global_batch=batch, policy="uniform", on_event=events.append, reseed=False,
                       max_batch=0 if victim else max_batch, micro_batch=micro_batch)  # fmt: skip
    model = models.make("gpt2")
    optimizer = torch_cases.optimizer_of(model)
    model, optimizer = job.prepare(model, optimizer)

    def loss_of(x, y):
        called.append(len(x))
        output = model(x)
        if victim and len(x) > holds:
            torch.empty(2**60)  # more than there is
        return models.loss_of(output, y)

    sizes = []
    for x, y in job.loader(models.data("gpt2", torch.float64), max_steps=steps):
        if job.backward(loss_of, x, y):
            sizes.append(len(x))
        optimizer.step()
        optimizer.zero_grad()
    job.close()
    whole = torch_cases.train_alone("gpt2", steps, batch, torch.float64)
    return {"far": (torch_cases.flat(model) - whole).abs().max().item(), "sizes": sizes, "called": called,
            "chunk": job._replica.chunk_size,
            "events": [(event.worker, event.words) for event in events if event.event == "out-of-memory"]}  # fmt: skip


def too_little_memory_in_own_ddp():
    """What rank 1 is told; rank 0 waits for nothing."""
    import torch_cases

    said = "nothing"
    job = isochron.Job(global_batch=24, timeout=20.0)
    model = job.prepare(torch_cases.wrap(small_model(), "ddp"))
    for x, _ in job.loader(Sentences(), max_steps=1):
        if job.rank == 1:
            try:
                job.backward(lambda x: model(x).mean() + torch.empty(2**60).mean(), x)
            except RuntimeError as error:
                said = str(error)
        break
    job.close()
    return said


def micro_batches_refused():
    """What is said where micro-batches cannot be had; rank 1 alone has micro_batch set."""
    words = []

    def note(call):
        try:
            call()
        except (ValueError, isochron.Error) as error:
            words.append(str(error))

    job = isochron.Job(global_batch=24, policy="static:weights=1/2", micro_batch=5 * dist.get_rank())
    note(lambda: job.prepare(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    model = job.prepare(small_model())
    for x, length in job.loader(Sentences(), max_steps=1):
        if job.rank == 1:
            note(lambda: job.backward(x.mean()))
            note(lambda: job.weight)
            note(lambda: job.backward(x.mean(), x))
            note(lambda: job.backward(model, x, length[:3]))
            note(lambda: job.backward(model, x, 3))
            note(lambda: job.backward(model, x, count=16))
        job.backward(lambda x: model(x).square().mean(), x)
    job.close()
    return words


def called_before_micro_batches(wrapper):
    """What is said when the model was called outside the loss function, and a model under no_grad() is not."""
    import torch_cases

    said = "nothing"
    job = isochron.Job(global_batch=24, policy="static:weights=1/2", micro_batch=5)
    model = job.prepare(torch_cases.wrap(small_model(), wrapper))
    for x, _ in job.loader(Sentences(96)):
        with torch.no_grad():
            model(x)
        job.backward(lambda x: model(x).square().mean(), x)
        if job.step == 1:
            break
    steps = job.step
    for x, _ in job.loader(Sentences(96)):
        model(x)
        try:
            job.backward(lambda x: model(x).square().mean(), x)
        except isochron.Error as error:
            said = str(error)
        break
    job.close()
    return steps, said


def sync_points_of_micro_batches():
    """The synchronisation points of every worker, and how many backward passes each made."""
    told, passes = [], []
    job = isochron.Job(global_batch=24, policy="static:weights=1/2", micro_batch=5 * dist.get_rank())
    gather = job._world.start_gather

    def listen(values):
        wait = gather(values)
        return lambda: told.append(wait()) or told[-1]

    job._world.start_gather = listen
    model = job.prepare(small_model())

    def loss_of(x):
        passes.append(len(x))
        return model(x).square().mean()

    for x, _ in job.loader(Sentences(), max_steps=2):
        job.backward(loss_of, x)
    job.close()
    return [[report.sync_points for report in read_reports(rows.numpy().tobytes())] for rows in told], len(passes)


def rounds_in_micro_batches():
    """Out of step with bound 0: as `in_micro_batches`."""
    dataset, called = models.Text(size=110), []
    model = models.make("lstm")
    start = values(model)
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    with isochron.Job(global_batch=24, sync="ssp", staleness=0, policy="static:weights=1/2", reseed=False,
                      micro_batch=5 * dist.get_rank()) as job:  # fmt: skip
        model, optimizer = job.prepare(model, optimizer)

        def loss_of(x, y):
            called.append(len(x))
            return models.loss_of(model(x), y)

        for x, y in job.loader(dataset):
            job.backward(loss_of, x, y)
            optimizer.step()
            optimizer.zero_grad()
    alone = alone_after("momentum", dataset, 1)
    return {"far": (values(model) - alone).abs().max().item(), "went": (alone - start).abs().max().item(),
            "called": called}  # fmt: skip
