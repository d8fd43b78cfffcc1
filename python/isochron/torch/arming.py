"""Which backward passes DDP averages, and what becomes of the others.

DDP averages in one backward pass for each forward pass. A second one over the same forward pass, with
retain_graph=True, leaves every worker its own gradients, and nothing says so. Here the gradients of such a pass are
averaged behind it: those that were averaged before are equal everywhere, and the average leaves them as they are.

A parameter that every pass reaches has a hook; with find_unused_parameters, where there is none, all have one.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

from isochron.torch.stopwatch import Waits, call_at_end_of_pass


def arm(model: Any, *unused: Any) -> None:
    """From a forward pass to the backward pass that follows, DDP averages whatever gradients come, in no_sync(),
    too."""
    if torch.is_grad_enabled() and model.require_backward_grad_sync:
        model._isochron_armed = True


def watch_passes(model: Any, waits: Waits) -> None:
    """Follows the passes of a model in DDP from now on."""
    model._isochron_armed = False
    model._isochron_pass = -1  # the last one whose gradients are averaged, by autograd's number
    trained = _trained(model)
    watched = weakref.ref(model)  # a hook of a parameter that held its model would keep both for ever

    def note(_: torch.Tensor) -> None:
        one, number = watched(), torch._C._current_graph_task_id()
        if one is None:
            return
        if one._isochron_armed:
            one._isochron_armed, one._isochron_pass = False, number
        elif one._isochron_pass != number and one.require_backward_grad_sync:
            one._isochron_pass = number
            # Behind what DDP asks for in the same pass, should somebody else have armed it.
            call_at_end_of_pass(lambda: call_at_end_of_pass(lambda: _average(one, waits)))

    for parameter in trained if model.find_unused_parameters else trained[:1]:
        parameter.register_post_accumulate_grad_hook(note)


def _trained(model: Any) -> list[torch.nn.Parameter]:
    left_out = model.parameters_to_ignore
    named = model.module.named_parameters()
    return [parameter for name, parameter in named if parameter.requires_grad and name not in left_out]


@torch.no_grad()
def _average(model: Any, waits: Waits) -> None:
    group, trained = model.process_group, _trained(model)
    if group is None:  # the other workers are gone
        return
    with waits.counted():
        there = [parameter.grad is not None for parameter in trained]
        if model.find_unused_parameters:
            counts = torch.tensor(there, dtype=torch.float32, device=trained[0].device)
            dist.all_reduce(counts, group=group)
            there = (counts > 0).tolist()
        by_kind: dict[Any, list[torch.Tensor]] = {}
        for parameter, somewhere in zip(trained, there, strict=True):
            if somewhere:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                by_kind.setdefault((parameter.grad.dtype, parameter.grad.device), []).append(parameter.grad)
        for gradients in by_kind.values():
            flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(group.size())
            dist.all_reduce(flat, group=group)
            parts = flat.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))
