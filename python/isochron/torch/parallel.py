"""Models as they take part in a job: wrapped with DDP unless they are DDP or FSDP already.

Whatever the wrapper, it averages gradients over the workers; weighting the loss by b_k K / B before backward makes that
average the gradient of the global batch.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from isochron.errors import Error
from isochron.torch.arming import arm, watch_passes
from isochron.torch.batch_norm import Statistics, has_batch_norm, make_exact
from isochron.torch.compression import attach
from isochron.torch.options import JobOptions
from isochron.torch.sides import SidedAverage
from isochron.torch.stopwatch import Stopwatch, Waits
from isochron.torch.world import World, all_gather_single, reduce_scatter_single

_SYNC_BUFFERS = "forward_sync_buffers"
if _SYNC_BUFFERS not in inspect.signature(DistributedDataParallel.__init__).parameters:
    _SYNC_BUFFERS = "broadcast_buffers"  # its name before torch 2.13


def _refuse_graphs(model: nn.Module) -> None:
    """A CUDA graph is of one batch size; make_graphed_callables() leaves its forward() in the module."""
    for name, part in model.named_modules():
        if getattr(vars(part).get("forward"), "__module__", "") == "torch.cuda.graphs":
            raise ValueError(
                f"prepare() got a {type(model).__name__} whose part '{name}' is a CUDA graph, which is of one batch "
                "size while those of a job change; permitted: modules as they are before make_graphed_callables()"
            )


def _begin_anew(state: Any, group: dist.ProcessGroup | None) -> None:
    """The state of a communication hook. PowerSGD's forgets what it has learned: on a new group DDP orders its buckets
    anew, some workers may have come further than others, and what a step that did not happen has left is no error of
    compression."""
    if hasattr(state, "follow"):
        state.follow(group)
        return
    state.process_group = group
    if hasattr(state, "error_dict"):
        for learned in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
            learned.clear()
        state.iter, state.rng = 0, type(state.rng)(0)


class ElasticDataParallel(DistributedDataParallel):
    """DDP that can be put on another group when workers are lost. A communication hook whose state has this model's
    `process_group` follows."""

    def __init__(
        self, module: nn.Module, world: World, statistics: Statistics, *, process_group: dist.ProcessGroup | None,
        **arguments: Any
    ) -> None:  # fmt: skip
        super().__init__(module, process_group=process_group, **arguments)
        self._isochron_world = world
        self._isochron_statistics = statistics
        self._isochron_called = False
        self._isochron_armed = False
        self._isochron_pass = -1
        self._isochron_arguments = arguments  # not the group: its connections close when nobody holds it any more
        self._isochron_hooks: list[tuple[Any, Any]] = []
        self._isochron_followers: list[Any] = []  # states of hooks that exchange over our group

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        super().register_comm_hook(state, hook)
        self._isochron_hooks.append((state, hook))
        if self.process_group is not None and getattr(state, "process_group", None) is self.process_group:
            self._isochron_followers.append(state)

    def _pre_forward(self, *inputs: Any, **arguments: Any) -> Any:
        self._isochron_called = True
        arm(self)
        return super()._pre_forward(*inputs, **arguments)

    def _sync_buffers(self) -> None:
        if not self._isochron_statistics.given_up:
            with self._isochron_world.waits.counted():
                super()._sync_buffers()

    def _isochron_begin_step(self) -> None:
        """DDP orders its buckets anew once, in a forward pass, and waits for the others there: rather do it here, where
        the clock does not run and a failure can be dealt with."""
        world = self._isochron_world
        if world.sides is not None and not self._isochron_hooks:  # nor has the user one, by now
            average = SidedAverage(self.process_group, world, self.device)
            self.register_comm_hook(average, lambda state, bucket: state.hook(bucket))
        self.reducer._rebuild_buckets()

    def _isochron_let_go(self) -> None:
        """Lets go of the reducer, and with it of the group."""
        self.reducer = None
        self.logger = None
        self.process_group: Any = None
        for state in self._isochron_followers:
            state.process_group = None

    def _isochron_take_up(self, group: dist.ProcessGroup | None) -> None:
        arguments, hooks, training = self._isochron_arguments, self._isochron_hooks, self.training
        for state in self._isochron_followers:
            _begin_anew(state, group)
        world = self._isochron_world
        # What is there is equal everywhere: init_sync would cost a broadcast of the model.
        again = {**arguments, "init_sync": False}
        self.__init__(self.module, world, self._isochron_statistics, process_group=group, **again)  # type: ignore[misc]
        self._isochron_arguments = arguments
        for state, hook in hooks:
            self.register_comm_hook(state, hook)
        self.train(training)


class TimedGather:
    """FSDP2's all-gather on a CPU, with the time it takes counted as waiting."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False):
        with self._waits.counted():
            work = all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        return TimedWork(work, self._waits) if async_op else work


class TimedScatter(TimedGather):
    """FSDP's reduce-scatter, likewise."""

    def __call__(  # type: ignore[override]
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ):
        with self._waits.counted():
            work = reduce_scatter_single(output_tensor, input_tensor, group=group, op=op, async_op=async_op)
        return TimedWork(work, self._waits) if async_op else work


class TimedWork:
    def __init__(self, work: Any, waits: Waits) -> None:
        self._work, self._waits = work, waits

    def wait(self, *arguments: Any) -> Any:
        with self._waits.counted():
            return self._work.wait(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _groups_of(module: Any) -> list[Any]:
    """FSDP2's groups of parameters that are gathered and reduced together; torch had one to a module before 2.12."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    return [group for group in groups if group is not None]


def _is_kept_root(module: Any, model: Any) -> bool:
    """FSDP2 keeps the parameters of the root after the forward pass, unless it was told not to, which it decides in the
    first one."""
    return module is model and bool(getattr(model._get_fsdp_state(), "_auto_reshard_after_forward", False))


def _time_group(group: Any, stopwatch: Stopwatch, waits: Waits) -> None:
    """On a GPU, FSDP2 gathers and reduces on streams of its own, and the stream that computes waits for them in these
    functions: for parameters before it uses them, for earlier reductions when a gradient is complete, and at the
    end."""
    wait_for_unshard, post_backward, finalize = group.wait_for_unshard, group.post_backward, group.finalize_backward

    def wait_for_parameters() -> None:
        gathered = group._all_gather_result
        if gathered and gathered.all_gather_event is not None:
            with waits.counted():
                torch.cuda.current_stream().wait_event(gathered.all_gather_event)
        wait_for_unshard()

    def reduce(*unused: Any) -> None:
        stopwatch.end_own_part()
        with waits.counted():
            post_backward(*unused)

    def wait_for_reduction() -> None:
        with waits.counted():
            finalize()

    group.wait_for_unshard, group.post_backward, group.finalize_backward = (
        wait_for_parameters, reduce, wait_for_reduction)  # fmt: skip


def _note_gradients(model: nn.Module, groups: list[Any], stopwatch: Stopwatch) -> None:
    """That a pass has gradients: FSDP2 reduces them in a function of the group, and FSDP1's are those of its flat
    parameters."""
    for group in groups:
        post_backward = group.post_backward

        def reduce(*unused: Any, post_backward: Any = post_backward) -> None:
            stopwatch.end_own_part()
            post_backward(*unused)

        group.post_backward = reduce
    for module in model.modules():
        handle: Any = getattr(module, "_handle", None) if is_fsdp1(module) else None
        if handle is not None and handle.flat_param.requires_grad:
            handle.flat_param.register_post_accumulate_grad_hook(lambda _: stopwatch.end_own_part())


def time_fsdp(model: nn.Module, stopwatch: Stopwatch, waits: Waits) -> None:
    """Has FSDP's exchanges counted as waiting."""
    modules = [module for module in model.modules() if _is_fsdp2(module)]
    groups = [group for module in modules for group in _groups_of(module)]
    if groups and groups[0].device.type == "cuda":
        for group in groups:
            _time_group(group, stopwatch, waits)
        return
    stopwatch.watch_to_end()
    _note_gradients(model, groups, stopwatch)
    for module in modules:
        if hasattr(module, "set_custom_all_gather"):
            module.set_custom_all_gather(TimedGather(waits))
            module.set_custom_reduce_scatter(TimedScatter(waits))


def _is_fsdp2(model: nn.Module) -> TypeGuard[Any]:
    fsdp = _fsdp()
    return fsdp is not None and isinstance(model, fsdp.FSDPModule)


def is_fsdp1(model: nn.Module) -> bool:
    fsdp = _fsdp()
    return fsdp is not None and isinstance(model, fsdp.FullyShardedDataParallel)


def is_fsdp(model: nn.Module) -> bool:
    return _is_fsdp2(model) or is_fsdp1(model)


def _fsdp() -> Any:
    return sys.modules.get("torch.distributed.fsdp")  # a model can be FSDP's only if that was imported


def _trained_by(optimizers: list[torch.optim.Optimizer]) -> set[int]:
    """The parameters (by id) that they have."""
    return {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}


def is_average(model: nn.Module, optimizers: list[torch.optim.Optimizer], others: list[nn.Module]) -> bool:
    """Whether it averages the weights of another model, by what people do with such a copy: no optimizer has it, and it
    is in eval(), or equal to one of the `others` that an optimizer has."""
    if isinstance(model, AveragedModel):
        return True
    trained = _trained_by(optimizers)
    if not trained or any(id(one) in trained for one in model.parameters()):
        return False
    originals = (one for one in others if any(id(each) in trained for each in one.parameters()))
    return not model.training or any(_equal(model, one) for one in originals)


def _equal(one: nn.Module, other: nn.Module) -> bool:
    if is_fsdp(one) or is_fsdp(other):
        return False  # whose tensors are not whole
    mine, theirs = one.state_dict(), other.state_dict()
    return bool(mine) and mine.keys() == theirs.keys() and all(_equal_values(mine[name], theirs[name]) for name in mine)


def _equal_values(mine: Any, theirs: Any) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return type(mine) is type(theirs)
    return mine.shape == theirs.shape and mine.dtype == theirs.dtype and torch.equal(mine.cpu(), theirs.cpu())


class Models:
    """The models of a job."""

    def __init__(self, world: World, statistics: Statistics, stopwatch: Stopwatch, options: JobOptions) -> None:
        self._world = world
        self._statistics = statistics
        self._stopwatch = stopwatch
        self._options = options
        self.models: list[nn.Module] = []
        self._kept: list[nn.Module] = []  # of them: averages
        self.moved = False  # one of them was elsewhere, so that its batches, too, have to be brought to the device
        self.averages: list[Any] = []  # of compressed gradients, that owe something
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []  # what a step changes by itself, from before it
        self.between: list[torch.Tensor] = []  # the same, from behind the last optimizer's step within it

    def add(self, model: nn.Module) -> nn.Module:
        wrapped = getattr(model, "_orig_mod", model)
        if wrapped is not model and (isinstance(wrapped, DistributedDataParallel) or is_fsdp(wrapped)):
            self.add(wrapped)  # compiled around its wrapper, as Accelerate does it
            return model
        _refuse_graphs(model)
        if self._options.sync_batch_norm:
            make_exact(model, self._statistics)
        if self._options.compression != "none" and (is_fsdp(model) or isinstance(model, DistributedDataParallel)):
            raise ValueError(
                f"compression is '{self._options.compression}' for a model in {type(model).__name__}; permitted: none, "
                "or the plain model, since a wrapper of one's own has communication hooks of its own"
            )
        if is_fsdp(model):
            time_fsdp(model, self._stopwatch, self._world.waits)
        elif isinstance(model, DistributedDataParallel):
            self._stopwatch.watch(model.parameters(), unpredictable=model.find_unused_parameters)
        else:
            model = self._wrap(model)
        if isinstance(model, DistributedDataParallel):
            if not isinstance(model, ElasticDataParallel):
                model.register_forward_pre_hook(arm)
            watch_passes(model, self._world.waits)
        self.models.append(model)
        self._copies += [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
        return model

    def keep(self, model: nn.Module) -> nn.Module:
        """One that is not trained: it is moved and saved with the others."""
        self._move(model)
        self.models.append(model)
        self._kept.append(model)
        return model

    def check_kept(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Raises ValueError if one of them trains what was taken for an average."""
        trained = _trained_by(optimizers)
        for model in self._kept:
            if any(id(one) in trained for one in model.parameters()):
                raise ValueError(
                    f"prepare() got the optimizer of a {type(model).__name__} that it had been given without one, and "
                    "has taken for an average of another model; permitted: both in one prepare()"
                )

    def _move(self, model: nn.Module) -> torch.device:
        device = torch.device(self._options.device or "cpu")
        tensors = itertools.chain(model.parameters(), model.buffers())
        self.moved = self.moved or any(tensor.device.type != device.type for tensor in tensors)
        model.to(device)
        return device

    def _wrap(self, model: nn.Module) -> nn.Module:
        device = self._move(model)
        self._stopwatch.watch(model.parameters(), bool(self._options.ddp.get("find_unused_parameters")))
        trained = any(parameter.requires_grad for parameter in model.parameters())
        if not self._world.has_group or self._world.size == 1 or not trained:
            return model
        arguments: dict[str, Any] = {
            # Statistics over the global batch are equal everywhere; a broadcast would be one more wait per step.
            _SYNC_BUFFERS: has_batch_norm(model) and not self._options.sync_batch_norm,
            "device_ids": [device] if device.type == "cuda" else None,
            "gradient_as_bucket_view": True,  # what was averaged need not be copied back
            **self._options.ddp,
        }
        group = self._world.gradients
        wrapped = ElasticDataParallel(model, self._world, self._statistics, process_group=group, **arguments)
        self.averages += attach(wrapped, self._options.compression, self._world.waits)
        return wrapped

    def plain(self) -> list[nn.Module]:
        """Without DDP around them."""
        return [model.module if isinstance(model, DistributedDataParallel) else model for model in self.models]

    @property
    def sharded(self) -> bool:
        return any(is_fsdp(model) for model in self.models)

    @property
    def can_be_rebuilt(self) -> bool:
        return all(
            isinstance(model, ElasticDataParallel) or not isinstance(model, DistributedDataParallel)
            for model in self.models
        ) and not self.sharded

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for model in self.models for parameter in model.parameters() if parameter.requires_grad]

    @contextlib.contextmanager
    def unsynchronised(self) -> Iterator[None]:
        """Gradients stay this worker's own, for accumulation."""
        with contextlib.ExitStack() as stack:
            for model in self.models:
                if _is_fsdp2(model):
                    model.set_requires_gradient_sync(False)
                    stack.callback(model.set_requires_gradient_sync, True)
                elif hasattr(model, "no_sync"):
                    stack.enter_context(model.no_sync())  # type: ignore[operator]
            yield

    @contextlib.contextmanager
    def kept_whole(self) -> Iterator[None]:
        """Around a pass that the other workers do not make along with this one: FSDP2 gathers parameters once, and they
        stay until a later pass, so that all workers gather equally often, in the same order. Raises Error if DDP
        would average in it."""
        if any(getattr(model, "_isochron_armed", False) for model in self.models):
            raise Error(
                "the model was called, with gradients and without a backward pass, before a batch in micro-batches; "
                "permitted: calls in the function that backward() is given, or under torch.no_grad()"
            )
        before = [
            (group, group.reshard_after_backward,
             None if _is_kept_root(module, model) else group.post_forward_mesh_info)
            for model in self.models if _is_fsdp2(model)
            for module in model.modules() if _is_fsdp2(module)
            for group in _groups_of(module)
        ]  # fmt: skip
        for group, _, _ in before:
            group.reshard_after_backward, group.post_forward_mesh_info = False, None
        try:
            yield
        finally:
            for group, after_backward, after_forward in before:
                group.reshard_after_backward, group.post_forward_mesh_info = after_backward, after_forward

    def arm(self) -> None:
        """Somebody else has told DDP to average in the coming pass."""
        for model in self.models:
            if isinstance(model, DistributedDataParallel):
                arm(model)

    def check_use(self, with_gradients: set[int]) -> None:
        """Raises Error if parameters (by id) have gradients though the wrapper that averages them was not called."""
        for model in self.models:
            if isinstance(model, ElasticDataParallel) and not model._isochron_called:
                if any(id(parameter) in with_gradients for parameter in model.parameters()):
                    raise Error(
                        "gradients are not averaged, since the model that prepare() returned was not called; write "
                        "model = job.prepare(model). If another library is to wrap the model, start the script with "
                        "torchrun, so that it knows of the other workers"
                    )

    # A step that fails did not happen.

    @torch.no_grad()
    def remember(self) -> None:
        if self._copies:
            buffers, copies = zip(*self._copies, strict=True)
            torch._foreach_copy_(copies, buffers)
        for state in self._followers():
            if hasattr(state, "remember"):
                state.remember()

    @torch.no_grad()
    def remember_between(self) -> None:
        if self._copies:
            self.between = self.between or [copy.clone() for _, copy in self._copies]
            torch._foreach_copy_(self.between, [buffer for buffer, _ in self._copies])

    @torch.no_grad()
    def go_on_from_between(self) -> None:
        if self.between:
            torch._foreach_copy_([buffer for buffer, _ in self._copies], self.between)

    @torch.no_grad()
    def undo(self) -> None:
        for buffer, copy in self._copies:
            buffer.copy_(copy)
        for parameter in self.parameters():
            parameter.grad = None
        for state in self._followers():
            if hasattr(state, "undo"):
                state.undo()
            else:
                _begin_anew(state, state.process_group)

    def _followers(self) -> list[Any]:
        wrapped = [model for model in self.models if isinstance(model, ElasticDataParallel)]
        return [state for model in wrapped for state in model._isochron_followers]

    def begin_step(self) -> None:
        for model in self.models:
            if isinstance(model, ElasticDataParallel):
                model._isochron_begin_step()

    def let_go(self) -> None:
        for model in self.models:
            if isinstance(model, ElasticDataParallel):
                model._isochron_let_go()

    def take_up(self) -> None:
        for model in self.models:
            if isinstance(model, ElasticDataParallel):
                model._isochron_take_up(self._world.gradients)
