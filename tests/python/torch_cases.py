"""What the ranks of the tests do; each function runs on all of them."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler
from torch_async_cases import *  # noqa: F403
from torch_feature_cases import *  # noqa: F403
from torch_gpu_cases import *  # noqa: F403


def flat(model, buffers=True):
    """All parameters and running statistics in one list."""
    from torch.distributed.tensor import DTensor

    tensors = list(model.parameters())
    if buffers:
        tensors += [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    whole = [tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return torch.cat([tensor.detach().double().flatten() for tensor in whole])


def autocast(amp):
    return torch.autocast("cpu", dtype=torch.bfloat16) if amp else contextlib.nullcontext()


def optimizer_of(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def train_alone(name, steps, batch, dtype, amp=False, accumulate=1, seed=0, dataset=None, lr=0.05, buffers=True):
    """The same samples in the same order, in one process and without Isochron."""
    model, dataset = models.make(name, dtype), dataset or models.data(name, dtype)
    optimizer = optimizer_of(model, lr)
    sampler = Sampler(len(dataset), batch, seed)
    done = 0
    while done < steps:
        left = sampler.samples_per_epoch - sampler.position
        total = min(accumulate * batch, left)
        for _ in range(-(-total // batch)):
            size = sampler.step_size
            indices = sampler.samples(sampler.position, sampler.position + size)
            x, y = torch.utils.data.default_collate([dataset[index] for index in indices])
            with autocast(amp):
                loss = models.loss_of(model(x), y)
            (loss * (size / total)).backward()
            sampler.advance()
            done += 1
        optimizer.step()
        optimizer.zero_grad()
    return flat(model, buffers)


def wrap(model, wrapper):
    if wrapper == "ddp":
        return DistributedDataParallel(model)
    if wrapper == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for child in reversed(list(model.modules())):  # inner ones first
            if isinstance(child, (models.Block, models.Attention, models.nn.BatchNorm1d)):
                fully_shard(child, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if wrapper == "compile":
        model = torch.compile(model, backend="aot_eager")
    return model


def parity(name, mode="plain", steps=50, batch=24, policy="static:weights=1/2", dtype="float64", weighting="exact"):
    """How far uneven training ends from single-process training, and how far that itself went."""
    kind = getattr(torch, dtype)
    accumulate = 2 if mode == "accumulate" else 1
    amp = mode == "amp"
    # Small steps in mixed precision, so that rounding does not grow from one to the next; and no running statistics,
    # which are of numbers that were rounded.
    lr = 2e-5 if amp else 0.05
    model = wrap(models.make(name, kind), mode)
    optimizer = optimizer_of(model, lr)
    sizes = set()
    job = isochron.Job(global_batch=batch, policy=policy, weighting=weighting, reseed=False)
    model, optimizer = job.prepare(model, optimizer)
    loader = job.loader(models.data(name, kind))
    while job.step < steps:
        for x, y in loader:
            sizes.add(len(x))
            with job.accumulate(accumulate) as last:
                with autocast(amp):
                    loss = models.loss_of(model(x), y)
                job.backward(loss)
            if last:
                optimizer.step()
                optimizer.zero_grad()
            if job.step + 1 >= steps:
                break
        job.finish_step()
    job.close()
    mine = flat(model, not amp)
    if job.rank > 0:
        return {"sum": mine.sum().item(), "sizes": sorted(sizes)}
    alone = train_alone(name, steps, batch, kind, amp, accumulate, lr=lr, buffers=not amp)
    start = flat(models.make(name, kind), not amp)
    rounding = 0.0
    if amp:
        wide = train_alone(name, steps, batch, kind, False, accumulate, lr=lr, buffers=False)
        rounding = ((wide - alone).norm() / (alone - start).norm()).item()
    return {
        "sum": mine.sum().item(),
        "far": (mine - alone).abs().max().item(),
        "went": (alone - start).abs().max().item(),
        "rounding": rounding,
        "relative": ((mine - alone).norm() / (alone - start).norm()).item(),
        "sizes": sorted(sizes),
        "used": job.ledger.used,
    }
