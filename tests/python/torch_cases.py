"""What the ranks of the tests do; each function runs on all of them."""

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_gpu_cases import *  # noqa: F403

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler
from isochron.torch.batch_norm import Statistics, make_exact
from torch_async_cases import *  # noqa: F403
from torch_compression_cases import changed_members, compressed, overflow, small_gradients  # noqa: F401
from torch_failure_cases import (  # noqa: F401
    late,
    lost_in_transfer,
    own_error,
    skipping_refused,
    spoiled,
    spoiled_out_of_step,
    survive,
    survive_twice,
)
from torch_feature_cases import *  # noqa: F403
from torch_local_cases import (  # noqa: F401
    chosen_rounds,
    local_against_bsp,
    lost_in_a_round,
    memory_in_a_round,
    not_finite_in_a_round,
    refused_in_rounds,
    rounds_alone,
    saved_between_rounds,
)
from torch_micro_batch_cases import (  # noqa: F401
    called_before_micro_batches,
    gradients_of_micro_batches,
    in_micro_batches,
    micro_batches_refused,
    rounds_in_micro_batches,
    sync_points_of_micro_batches,
    too_little_memory,
    too_little_memory_in_own_ddp,
)
from torch_number_cases import (  # noqa: F401
    from_before,
    not_finite,
    short_ledger,
    state_of_nothing,
    sync_points,
    two_optimizers,
    unprepared,
)
from torch_side_cases import sided, survive_on_sides  # noqa: F401
from torch_word_cases import remembers_an_object, sends_a_pickle  # noqa: F401


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


class Threads:
    """In place of torch.distributed: the workers are threads of one process."""

    def __init__(self, size):
        self.size, self.failure = size, None
        self.barrier = threading.Barrier(size)
        self.said = [None] * size
        self.mine = threading.local()

    def kept_failure(self):
        return contextlib.nullcontext()

    def where_exchanged(self, values):
        return values

    def gather(self, values):
        self.said[self.mine.rank] = values.clone()
        self.barrier.wait()
        rows = torch.stack(self.said)
        self.barrier.wait()
        return rows

    def reduce(self, values):
        values.copy_(self.gather(values).sum(0))


def train_by_shares(name, steps, sizes, dtype, lr):
    """In one process and in mixed precision, share by share, since bf16 rounds by the shape of what it multiplies: a
    thread computes the gradient of each, BatchNorm knows all of them, and one optimizer takes the weighted sum."""
    model, dataset = models.make(name, dtype), models.data(name, dtype)
    optimizer = optimizer_of(model, lr)
    sampler = Sampler(len(dataset), sum(sizes))
    threads = Threads(len(sizes))
    copies = [models.make(name, dtype) for _ in sizes]
    for copy in copies:
        make_exact(copy, Statistics(threads))

    def gradient(rank, indices):
        threads.mine.rank = rank
        copies[rank].load_state_dict(dict(model.named_parameters()), strict=False)
        x, y = torch.utils.data.default_collate([dataset[index] for index in indices])
        with autocast(True):
            loss = models.loss_of(copies[rank](x), y)
        return torch.autograd.grad(loss * (len(x) / sum(sizes)), list(copies[rank].parameters()))

    with ThreadPoolExecutor(len(sizes)) as pool:
        for _ in range(steps):
            indices = sampler.samples(sampler.position, sampler.position + sum(sizes))
            shares = [indices[end - size : end] for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)]
            gradients = list(pool.map(gradient, range(len(sizes)), shares))
            for parameter, *parts in zip(model.parameters(), *gradients, strict=True):
                parameter.grad = sum(parts)
            optimizer.step()
            sampler.advance()
    return flat(model, buffers=False)


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


def parity(
    name,
    mode="plain",
    steps=50,
    batch=24,
    policy="static:weights=1/2",
    dtype="float64",
    weighting="exact",
    by_shares=False,
):
    """How far uneven training ends from single-process training, and how far that itself went."""
    kind = getattr(torch, dtype)
    accumulate = 2 if mode == "accumulate" else 1
    amp = mode == "amp"
    model = wrap(models.make(name, kind), mode)
    optimizer = optimizer_of(model)
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
    mine = flat(model, not by_shares)
    if job.rank > 0:
        return {"sum": mine.sum().item(), "sizes": sorted(sizes)}
    if by_shares:
        alone = train_by_shares(name, steps, job.batch_sizes, kind, 0.05)
    else:
        alone = train_alone(name, steps, batch, kind, amp, accumulate)
    start = flat(models.make(name, kind), not by_shares)
    return {
        "sum": mine.sum().item(),
        "far": (mine - alone).abs().max().item(),
        "went": (alone - start).abs().max().item(),
        "relative": ((mine - alone).norm() / (alone - start).norm()).item(),
        "sizes": sorted(sizes),
        "used": job.ledger.used,
    }
