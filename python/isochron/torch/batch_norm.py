"""Batch normalisation over the global batch, exact however unequal the workers' shares are, on CPUs and GPUs alike.

With n_k values per channel on worker k and N = sum n_k, every worker normalises with
  mean = sum_k (n_k / N) mean_k,   var = sum_k (n_k / N) (var_k + (mean_k - mean)^2),
and the gradient of its inputs is that of all workers' losses together:
  dx = (w / s) (dy - (sum dy + xhat sum dy xhat) / N),   s = sqrt(var + eps),   sums over all workers.
A worker without samples computes a stand-in, which is not in the statistics: (w / s) dy is all of its dx.
Losses are scaled by b_k K / B and gradients averaged, so what remains is one batch of B.

A layer costs an exchange of 2 C + 1 numbers forward and one of 2 C backward: over NCCL, without the host waiting for
the GPU, if gradients go that way, else through host memory, so that workers on CPUs and GPUs mix, from everybody to
everybody in one hop.
Over NCCL the kernels of torch's own SyncBatchNorm do the arithmetic, which read and write an input in its own precision
and layout and weigh every worker's statistics by its count.
All workers must run the same layers in the same order. A lost worker does not show in the model's code: from then on
a layer uses what this worker has, and the job deals with the failure at the end of the step. So does a layer that the
loop calls for the rest of a batch that was given up.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo  # torch.compiler's own would import the whole compiler
from torch.autograd.function import once_differentiable
from torch.nn import functional

from isochron.torch.world import World


class Statistics:
    """How the layers of a job reach the other workers. A copy of a model shares it; a pickled model goes without."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts = True  # False: this worker's samples are a stand-in that counts for nothing
        self.all_count = True  # no worker has a stand-in
        self.given_up = False  # the batch is: what the loop still computes with it the others may not compute

    def __deepcopy__(self, memo: dict[int, Any]) -> Statistics:
        return self

    def __reduce__(self) -> Any:
        return type(None), ()

    def by_kernels(self, x: torch.Tensor, running: torch.Tensor | None) -> bool:
        """Whether torch's kernels for GPUs can do it: they know no worker without samples, and count in the precision
        of the running statistics."""
        if not (x.is_cuda and self.all_count and x.numel() > 0 and self.world.where_exchanged(x) is x):
            return False
        return running is None or running.dtype == torch.promote_types(x.dtype, torch.float32)

    def gather(self, mine: torch.Tensor) -> torch.Tensor:
        """Such a tensor of every worker, one a row; of this one alone if another is lost."""
        with self.world.kept_failure():
            if self._goes_round:
                return self.world.gather(mine)
        return mine.unsqueeze(0)

    @property
    def _goes_round(self) -> bool:
        return self.world.failure is None and not self.given_up

    def pool(
        self, mean: torch.Tensor, variance: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Mean, variance and number of values per channel over all workers."""
        mine = torch.cat((mean, variance, mean.new_full((1,), count if self.counts else 0))).double()
        rows = self.gather(self.world.where_exchanged(mine))
        means, variances, counts = rows[:, : mean.numel()], rows[:, mean.numel() : -1], rows[:, -1:]
        total = counts.sum().clamp(min=1.0)
        pooled = (counts * means).sum(0) / total
        spread = (counts * (variances + (means - pooled) ** 2)).sum(0) / total
        return pooled.to(mean), spread.to(mean), total.to(mean.device)

    def add(self, sums: torch.Tensor, wide: bool = True) -> torch.Tensor:
        """Over all workers; in double precision if `wide`, else in place."""
        if wide:  # added up in the same order everywhere
            return self.gather(self.world.where_exchanged(sums.double())).sum(0).to(sums)
        with self.world.kept_failure():
            if self._goes_round:
                self.world.reduce(sums)
        return sums


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *([1] * (like.dim() - 2)))


def _has_kernels(x: torch.Tensor) -> bool:
    """Whether torch's own kernels for CPUs compute the parts: a pass over the values each, where operations take
    several."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def _moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """This worker's mean and variance by channel."""
    if x.is_cuda or _has_kernels(x):
        return torch.batch_norm_update_stats(x, None, None, 0.0)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, [0, *range(2, x.dim())], correction=0)
    return mean, variance


def _gradients(ctx: Any, dy: torch.Tensor, x: torch.Tensor, weight: Any, mean: torch.Tensor,
               variance: torch.Tensor) -> tuple[Any, ...]:  # fmt: skip
    """dx is, by channel, a multiple of dy and a line in x, which a BatchNorm with statistics 0 and 1 computes."""
    aten = torch.ops.aten
    inverse = torch.rsqrt(variance + ctx.eps)
    by_weight, by_bias = aten.native_batch_norm_backward(
        dy, x, torch.ones_like(mean) if weight is None else weight.to(mean.dtype), mean, variance, mean, inverse, False,
        ctx.eps, [False, True, True])[1:]  # fmt: skip
    total_dy, total_dy_normal = ctx.statistics.add(torch.cat((by_bias, by_weight)).double()).chunk(2)
    precise = torch.rsqrt(variance.double() + ctx.eps)
    scale = precise if weight is None else precise * weight
    through_statistics = -scale * ctx.share
    slope = through_statistics * precise * total_dy_normal
    offset = through_statistics * total_dy - slope * mean
    zero, one = torch.zeros_like(mean), torch.ones_like(mean)
    line = aten.native_batch_norm(x, slope.to(mean.dtype), offset.to(mean.dtype), zero, one, False, 0.0, 0.0)[0]
    dx = line.addcmul_(dy, _per_channel(scale.to(mean.dtype), x))
    dweight = by_weight.to(weight.dtype) if weight is not None else None
    return dx, dweight, by_bias if ctx.has_bias else None, None, None, None, None, None


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, variance: torch.Tensor,
                eps: float, total: torch.Tensor, statistics: Statistics) -> torch.Tensor:  # fmt: skip
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.statistics, ctx.has_bias = eps, statistics, bias is not None
        # A stand-in is not in the statistics, so no gradient comes through them.
        ctx.share = 1.0 / total if statistics.counts else torch.zeros_like(total)
        return functional.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        if _has_kernels(x) and dy.dtype == x.dtype:
            return _gradients(ctx, dy, x, weight, mean, variance)
        dims = [0, *range(2, x.dim())]
        inverse = torch.rsqrt(variance + ctx.eps)
        wide = dy.to(mean.dtype)
        normal = (x.to(mean.dtype) - _per_channel(mean, x)).mul_(_per_channel(inverse, x))
        sum_dy = wide.sum(dims)
        sum_dy_normal = (wide * normal).sum(dims)
        total_dy, total_dy_normal = ctx.statistics.add(torch.cat((sum_dy, sum_dy_normal))).chunk(2)
        scale = inverse if weight is None else inverse * weight.to(inverse.dtype)
        normal.mul_(_per_channel(-total_dy_normal * ctx.share.to(mean.dtype), x)).add_(wide)
        normal.sub_(_per_channel(total_dy * ctx.share.to(mean.dtype), x))
        dx = normal.mul_(_per_channel(scale, x)).to(x.dtype)
        dweight = sum_dy_normal.to(weight.dtype) if weight is not None else None
        dbias = sum_dy.to(mean.dtype) if ctx.has_bias else None
        return dx, dweight, dbias, None, None, None, None, None


class _NormaliseByKernels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, bias: Any, running: tuple[Any, Any], share: float, eps: float,
                statistics: Statistics) -> torch.Tensor:  # fmt: skip
        x = _in_a_layout_of_kernels(x)
        weight = weight.contiguous() if weight is not None else None
        channels = x.shape[1]
        mean, inverse = torch.batch_norm_stats(x, eps)
        rows = statistics.gather(torch.cat((mean, inverse, mean.new_full((1,), x.numel() // channels))))
        counts = rows[:, -1]
        # Only the type of the first argument counts, and that of the running statistics, if there are any.
        mean, inverse = torch.batch_norm_gather_stats_with_counts(
            mean, rows[:, :channels], rows[:, channels:-1], *running, share, eps, counts)  # fmt: skip
        ctx.save_for_backward(x, weight, mean, inverse, counts.to(torch.int32))
        ctx.statistics = statistics
        return torch.batch_norm_elemt(x, weight, bias, mean, inverse, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, weight, mean, inverse, counts = ctx.saved_tensors
        dy = _in_a_layout_of_kernels(dy)
        by_weight, by_bias = ctx.needs_input_grad[1:3]
        *sums, dweight, dbias = torch.batch_norm_backward_reduce(dy, x, mean, inverse, weight, True, by_weight, by_bias)
        sum_dy, sum_dy_xmu = ctx.statistics.add(torch.cat(sums), wide=False).chunk(2)
        wide = weight.to(mean.dtype) if weight is not None else None
        dx = torch.batch_norm_backward_elemt(dy, x, mean, inverse, wide, sum_dy, sum_dy_xmu, counts)
        return dx, dweight if by_weight else None, dbias if by_bias else None, None, None, None, None


def _in_a_layout_of_kernels(x: torch.Tensor) -> torch.Tensor:
    formats = (torch.channels_last, torch.channels_last_3d)
    return x if any(x.is_contiguous(memory_format=one) for one in formats) else x.contiguous()


class _ExactBatchNorm(nn.modules.batchnorm._BatchNorm):
    isochron_statistics: Statistics | None

    @_disable_dynamo
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        statistics = getattr(self, "isochron_statistics", None)
        if not self.training or statistics is None or statistics.world.size == 1:
            return super().forward(x)
        self._check_input_dim(x)
        if statistics.by_kernels(x, self.running_mean):
            return self._forward_by_kernels(x, statistics)
        with torch.no_grad():
            middle, spread = _moments(x.detach())
            mean, variance, total = statistics.pool(middle, spread, x.numel() // x.shape[1])
            self._remember(mean, variance, total)
        return _Normalise.apply(x, self.weight, self.bias, mean, variance, self.eps, total, statistics)

    def _forward_by_kernels(self, x: torch.Tensor, statistics: Statistics) -> torch.Tensor:
        running: tuple[Any, Any] = (None, None)
        share = 0.0
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            share = self._share_of_new()
            running = self.running_mean, self.running_var
        return _NormaliseByKernels.apply(x, self.weight, self.bias, running, share, self.eps, statistics)

    def _share_of_new(self) -> float:
        """In the running statistics."""
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return self.momentum if self.momentum is not None else 1.0 / self.num_batches_tracked.item()

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        share = self._share_of_new()
        unbiased = variance * (total / (total - 1.0).clamp(min=1.0))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


class ExactSyncBatchNorm(_ExactBatchNorm):
    """In place of torch's SyncBatchNorm, which refuses CPU tensors."""

    def _check_input_dim(self, x: torch.Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {x.dim()}D input)")


@functools.cache
def _exact_class(kind: type[nn.Module]) -> type[nn.Module] | None:
    """Knows BatchNorm layers, FSDP's and users' variants among them, as long as they normalise as torch does."""
    if kind is nn.SyncBatchNorm:
        return ExactSyncBatchNorm
    if issubclass(kind, _ExactBatchNorm) or kind.forward is not nn.modules.batchnorm._BatchNorm.forward:
        return None
    return type(f"Exact{kind.__name__}", (_ExactBatchNorm, kind), {})


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def make_exact(model: nn.Module, statistics: Statistics) -> int:
    """Turns the BatchNorm layers of `model` into exact ones, in place: parameters, hooks and names stay. Returns how
    many there are."""
    count = 0
    for module in model.modules():
        kind: Any = type(module)  # mypy takes no class for hashable
        exact = _exact_class(kind) if isinstance(module, nn.modules.batchnorm._BatchNorm) else None
        if exact is not None:
            module.__class__ = exact
        if isinstance(module, _ExactBatchNorm):
            module.isochron_statistics = statistics
            count += 1
    return count
