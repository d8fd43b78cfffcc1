"""The exact BatchNorm as GPUs compute it, by the kernels of torch's SyncBatchNorm. Those are for GPUs only; what they
compute is written out here in plain tensors, so that everything around them is tested where there is no GPU. For the
kernels themselves there is test_torch_gpu.py."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from isochron.torch import batch_norm
from torch_cases import Threads


def per_channel(values, x):
    return values.view(1, -1, *([1] * (x.dim() - 2)))


def dims(x):
    return [0, *range(2, x.dim())]


def stats(x, eps):
    variance, mean = torch.var_mean(x, dims(x), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats(like, means, inverses, running_mean, running_var, momentum, eps, counts):
    assert counts.dtype == like.dtype and counts.min() > 0
    counts = counts.unsqueeze(1)
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    variance = (counts * (inverses**-2 - eps + (means - mean) ** 2)).sum(0) / total
    if running_mean is not None:
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance * total / (total - 1), momentum)
    return mean, (variance + eps).rsqrt()


def elemt(x, weight, bias, mean, inverse, eps):
    y = (x - per_channel(mean, x)) * per_channel(inverse, x)
    y = y if weight is None else y * per_channel(weight, x)
    return y if bias is None else y + per_channel(bias, x)


def backward_reduce(dy, x, mean, inverse, weight, by_input, by_weight, by_bias):
    sum_dy, sum_dy_xmu = dy.sum(dims(x)), (dy * (x - per_channel(mean, x))).sum(dims(x))
    return sum_dy, sum_dy_xmu, sum_dy_xmu * inverse if by_weight else None, sum_dy.clone() if by_bias else None


def backward_elemt(dy, x, mean, inverse, weight, sum_dy, sum_dy_xmu, counts):
    assert counts.dtype == torch.int32
    total = counts.sum()
    slope = per_channel(inverse**2 * sum_dy_xmu / total, x)
    scale = inverse if weight is None else inverse * weight
    return (dy - per_channel(sum_dy / total, x) - (x - per_channel(mean, x)) * slope) * per_channel(scale, x)


@pytest.fixture
def kernels(monkeypatch):
    calls = []
    for name, stand_in in {
        "batch_norm_stats": stats, "batch_norm_gather_stats_with_counts": gather_stats, "batch_norm_elemt": elemt,
        "batch_norm_backward_reduce": backward_reduce, "batch_norm_backward_elemt": backward_elemt,
    }.items():  # fmt: skip
        monkeypatch.setattr(
            torch, name, lambda *given, name=name, stand_in=stand_in: (calls.append(name), stand_in(*given))[1]
        )
    able = batch_norm.Statistics.by_kernels
    monkeypatch.setattr(batch_norm.Statistics, "by_kernels", lambda self, x, running: able(self, _OnGpu(x), running))
    return calls


class _OnGpu:
    """The tensor as if it lay on a GPU."""

    is_cuda = True

    def __init__(self, x):
        self.numel, self.dtype = x.numel, x.dtype


LAYERS = {
    "1d": (lambda: nn.BatchNorm1d(3), (3,)),
    "2d": (lambda: nn.BatchNorm2d(3), (3, 4, 5)),
    "channels_last": (lambda: nn.BatchNorm2d(3), (3, 4, 5)),
    "plain": (lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False), (3, 4, 5)),
    "cumulative": (lambda: nn.BatchNorm2d(3, momentum=None), (3, 4, 5)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_kernels_on_unequal_shares_are_one_batch(kernels, kind):
    expect_one_batch(kind, Threads(3))
    assert kernels.count("batch_norm_backward_elemt") == 2 * 3  # steps, workers


@pytest.mark.parametrize("kind", LAYERS)
def test_workers_with_and_without_kernels_are_one_batch(monkeypatch, kind):
    """As CPUs and GPUs are in one job: what they exchange must mean the same."""
    threads = Threads(3)
    monkeypatch.setattr(batch_norm, "_has_kernels", lambda x: threads.mine.rank != 1)
    expect_one_batch(kind, threads)


def expect_one_batch(kind, threads):
    make, shape = LAYERS[kind]
    sizes, steps = (5, 2, 1), 2
    torch.manual_seed(0)
    whole = make().double()
    copies = [make().double() for _ in sizes]
    for copy in copies:
        batch_norm.make_exact(copy, batch_norm.Statistics(threads))
    for _ in range(steps):
        x = torch.randn(sum(sizes), *shape, dtype=torch.float64)
        x = x.to(memory_format=torch.channels_last) if kind == "channels_last" else x
        dy = torch.randn_like(x)
        alone = x.clone().requires_grad_()
        expected = whole(alone)
        expected.backward(dy)

        def compute(rank, x=x, dy=dy):
            threads.mine.rank = rank
            begin = sum(sizes[:rank])
            share = slice(begin, begin + sizes[rank])
            mine = x[share].clone().requires_grad_()
            y = copies[rank](mine)
            # On the same thread, which is the worker.
            grads = torch.autograd.grad(y, [mine, *copies[rank].parameters()], dy[share])
            return y.detach(), *grads

        with ThreadPoolExecutor(len(sizes)) as pool:
            results = list(pool.map(compute, range(len(sizes))))
        y, dx, *parameters = zip(*results, strict=True)
        torch.testing.assert_close(torch.cat(y), expected.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(torch.cat(dx), alone.grad, rtol=0, atol=1e-12)
        for parts, parameter in zip(parameters, whole.parameters(), strict=True):
            torch.testing.assert_close(sum(parts), parameter.grad, rtol=0, atol=1e-12)
            parameter.grad = None
        for copy in copies:
            for mine, theirs in zip(copy.buffers(), whole.buffers(), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


def test_kernels_are_for_gpus_with_samples_on_every_worker_and_wide_running_statistics():
    statistics = batch_norm.Statistics(Threads(1))
    x, running = torch.zeros(2, 3), torch.zeros(3)
    assert not statistics.by_kernels(x, running)
    on_gpu = _OnGpu(x)
    assert statistics.by_kernels(on_gpu, running) and statistics.by_kernels(on_gpu, None)
    assert not statistics.by_kernels(on_gpu, running.half())
    assert not statistics.by_kernels(_OnGpu(x[:0]), running)
    statistics.all_count = False
    assert not statistics.by_kernels(on_gpu, running)
