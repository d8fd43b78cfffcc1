"""A job whose workers are not in step (sync="asp", "ssp"): isochron.served carries it, this file ties it to PyTorch.

One iteration:
  a) the loader asks the coordinator for samples, pulls the parameters from the shards of all workers, and hands out a
     batch;
  b) backward() computes this worker's own gradients;
  c) optimizer.step() sends them, as they are then (clipped, unscaled), with the present settings of their groups; the
     shards take the step, and the gradients are dropped, so that the optimizer itself has nothing to do;
  d) the loader waits for the shards' answers when it goes on.

At the end of an epoch all meet: everybody has the same parameters then, and evaluation, save() and state_dict() are
possible there.
"""

from __future__ import annotations

import enum
import math
import os
import time
from typing import Any, NoReturn

import torch
from torch import nn

from isochron._core import Assignment, Decision, Ledger, lay_out
from isochron.errors import Error, SampleError
from isochron.served.course import Course, Place, Together
from isochron.torch import shard_optimizer, state
from isochron.torch.finite import drop_gradients
from isochron.torch.job import Job
from isochron.torch.records import UpdateRecord
from isochron.torch.served_models import ServedModels
from isochron.torch.shard_optimizer import SliceUpdater
from isochron.torch.source import MapSource, is_stream


class Stage(enum.Enum):
    MEETING = enum.auto()  # all are together
    FREE = enum.auto()  # between two iterations
    COMPUTING = enum.auto()  # a batch is out
    COMPUTED = enum.auto()  # its gradients are there, and perhaps on their way


class AsyncJob(Job):
    """What Job() makes of sync="asp" and sync="ssp"."""

    def __init__(self, global_batch: int, **options: Any) -> None:
        options["elastic"] = options.get("elastic") or False
        options.setdefault("numbers", "ignore")
        super().__init__(global_batch, **options)
        self._models: ServedModels = ServedModels(self._world, self._statistics, self._stopwatch, self.options)
        self._prepared.models = self._models
        self._known_sizes: set[int] = set()  # that the device has computed; the first step with one takes a GPU longer
        self._course: Course | None = None
        self._stage = Stage.MEETING
        self._parameters: list[nn.Parameter] = []  # that are trained, in the order of the layout
        self._next_update = 0
        self._compute_noted = False

    # What it is asked for.

    def prepare(self, *things: Any) -> Any:
        """As in step, but models are not wrapped, and BatchNorm uses this worker's own samples. One optimizer."""
        optimizers = [thing for thing in things if isinstance(thing, torch.optim.Optimizer)]
        for optimizer in optimizers:
            shard_optimizer.check(optimizer, self.options.sync, self.options.momentum_correction)
        if len(self._optimizers) + len(optimizers) > 1:
            raise ValueError(f"prepare() got a second optimizer with sync '{self.options.sync}'; permitted: one")
        return super().prepare(*things)

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        self._hooks.append(optimizer.register_step_pre_hook(self._push))

    def loader(self, dataset: Any, **options: Any) -> Any:
        if is_stream(dataset):
            sync = self.options.sync
            raise ValueError(f"the dataset is iterable with sync '{sync}'; permitted: one with __getitem__")
        return super().loader(dataset, **options)

    def _open_trace(self, go_on: bool) -> None:
        assert self._source is not None
        self._trace.open(
            self.is_first, self._source.samples_per_epoch, self._next_update, self._replica.workers, go_on
        )

    @property
    def _awaits_backward(self) -> bool:
        return self._stage is Stage.COMPUTING

    @property
    def _has_batch(self) -> bool:
        return self._stage is Stage.COMPUTING

    @property
    def _my_count(self) -> int:
        return self._order.batch

    def _compute(
        self, loss: torch.Tensor, items: float, counted: bool, reduction: str, scaler: Any, arguments: dict[str, Any]
    ) -> None:
        """Gradients are those of this worker's samples afterwards; optimizer.step() sends them."""
        self._items, batch = items, self._my_count
        # In rounds the shards weight by samples and divide by those of the round.
        in_sum = reduction == "sum" and self._order.round_samples > 0
        scaled = loss * (self._order.round_samples / batch) if in_sum else loss
        (scaler.scale(scaled) if scaler is not None else scaled).backward(**arguments)
        self._note_computed(float(loss.detach() if reduction == "mean" else loss.detach() / max(batch, 1)))

    def _note_computed(self, loss: float) -> None:
        if self._compute_noted:
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        assert self._course is not None
        seconds = time.perf_counter() - self._stopwatch.started
        warm = self.device.type == "cpu" or self._order.batch in self._known_sizes
        self._known_sizes.add(self._order.batch)
        self._course.computed(loss, self._stopwatch.cpu_share(seconds), self._memory.share(), warm=warm)
        self._compute_noted = True
        self._stage = Stage.COMPUTED

    @property
    def weight(self) -> float:
        """1: an update is the mean over this worker's samples."""
        if self._stage not in (Stage.COMPUTING, Stage.COMPUTED):
            raise Error("weight without a batch of the loader")
        self._scales_itself = True
        return 1.0

    def accumulate(self, steps: int) -> NoReturn:
        raise ValueError(f"accumulate({steps!r}) with sync '{self.options.sync}'; permitted: with sync 'bsp'")

    def give_up_step(self, error: BaseException) -> None:
        raise error

    # Iterations.

    @property
    def _order(self) -> Assignment:
        assert self._course is not None
        return self._course.order

    def _begin_step(self) -> Any:
        self.finish_step()
        if self.stopping:
            return None
        if not self._models.models or not self._optimizers:
            sync = self.options.sync
            raise Error(f"a batch of the loader before prepare(), which with sync '{sync}' takes model and optimizer")
        if self._course is None:
            self._course = self._set_out()
        if self._stage is Stage.MEETING:
            self._course.enter()
            self._stage = Stage.FREE
        signal = self._signals.received() if self._signals is not None else 0
        order = self._course.next_order(1 + signal if signal else int(self._stop_wanted))
        for update in order.records:
            self._tell_of(UpdateRecord.of(update, self._replica.workers))
        if order.barrier:
            self._meet(order)
            return None
        return (self._fetch(order),)

    def _set_out(self) -> Course:
        """With what model and optimizer hold now."""
        assert self._source is not None
        optimizer, rank = self._optimizers[0], self._world.rank
        groups = [[one for one in group["params"] if one.requires_grad] for group in optimizer.param_groups]
        self._parameters = [parameter for group in groups for parameter in group]
        kinds = [[(str(one.dtype), one.element_size(), one.numel()) for one in group] for group in groups]
        layout = lay_out(kinds, self._world.size)
        updaters = shard_optimizer.cut(optimizer, self._parameters, layout, rank)
        replica = self._replica
        place = Place(
            replica.epoch, replica.position, self._source.samples_per_epoch, replica.ledger, self._next_update
        )
        together = Together(self._world.gather_objects, self._world.sum)
        learned = state.part(replica.state(), "controller.").encode()
        return Course(rank, replica.workers, self.options, together, layout, list(updaters), place, learned)

    def _fetch(self, order: Assignment) -> Any:
        assert self._course is not None and isinstance(self._source, MapSource)
        self._stopwatch.start()
        self._course.start_pull()
        with self._course.telling_others():
            try:
                batch = self._source.take_positions(order.first, order.last)
            except SampleError:
                self._course.finish_pull()  # who is still answering would not hear why we leave
                raise
        self._course.finish_pull()
        self._take_values()
        if self.options.reseed:
            self._reseed(self.epoch, order.first)
        if self._step_file is not None:
            self._step_file.publish(self.step)
        self._scales_itself = self._compute_noted = False
        self._items = float(order.batch)
        self._stage = Stage.COMPUTING
        return self._hand_out(batch)

    def _strips(self, arrays: list[Any]) -> list[torch.Tensor]:
        """The parts of the strips that belong to the parameters, one by one."""
        assert self._course is not None
        layout = self._course.layout
        views = []
        for parameter, slot in zip(self._parameters, layout.slots, strict=True):
            width = parameter.element_size()
            part = torch.from_numpy(arrays[slot.strip][slot.first * width : slot.last * width])
            views.append(part.view(parameter.dtype).view(parameter.shape))
        return views

    @torch.no_grad()
    def _take_values(self) -> None:
        assert self._course is not None
        for parameter, values in zip(self._parameters, self._strips(self._course.values), strict=True):
            parameter.copy_(values)

    @torch.no_grad()
    def _push(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        """Before a step of the optimizer, which will find no gradient."""
        if self._course is None or self._stage not in (Stage.COMPUTING, Stage.COMPUTED):
            return  # somebody steps between two batches: nothing is there to be sent
        self._note_computed(math.nan)
        for parameter, into in zip(self._parameters, self._strips(self._course.gradients), strict=True):
            if parameter.grad is None:
                into.zero_()
            else:
                into.copy_(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
        corrected = self.options.momentum_correction and not self._course.in_rounds
        workers = self._world.size if corrected else 0
        groups = [shard_optimizer.settings_of(group, workers) for group in optimizer.param_groups]
        self._course.push([groups[strip.group] for strip in self._course.layout.strips], self._items)
        drop_gradients(optimizer)

    def finish_step(self) -> None:
        """Waits until all shards have the update; the loader does it by itself."""
        if self._stage is Stage.COMPUTING and not self._scales_itself:
            raise Error("the loader went on to the next step before backward()")
        if self._stage in (Stage.COMPUTING, Stage.COMPUTED):
            assert self._course is not None
            self._note_computed(math.nan)
            self._course.finish()
            self._stage = Stage.FREE

    def _tell_of(self, update: UpdateRecord) -> None:
        self._next_update = update.step + 1
        if update.worker.id == self._replica.workers[self._world.rank].id:
            self._update = update
        self._trace.update(update)

    # Meetings.

    def _meet(self, order: Assignment) -> None:
        assert self._course is not None
        self._course.come_together()
        self._take_values()
        self._models.average_buffers(self._course.samples)
        place = self._course.place
        parts = {"controller.": order.controller.decode(), "place.ledger.": place.ledger.state().decode()}
        fields = {"place.epoch": place.epoch, "place.position": place.position, "stopping": order.stopping,
                  "stop_signal": order.stop_signal}  # fmt: skip
        self._replica.take_over(state.changed(self._replica.state(), parts, fields))
        self._stage = Stage.MEETING

    def _require_meeting(self, what: str) -> None:
        self.finish_step()
        if self._stage is not Stage.MEETING:
            sync = self.options.sync
            raise Error(f"{what} in the middle of an epoch with sync '{sync}'; permitted: when its loop is over")

    @property
    def step(self) -> int:
        """So many global batches' samples were dealt in the whole job."""
        if self._source is None:
            return super().step
        position = self._replica.position if self._stage is Stage.MEETING else self._order.first
        return self.epoch * self._source.steps_per_epoch + position // self.options.global_batch

    @property
    def decision(self) -> Decision:
        """As the coordinator has said it last."""
        return super().decision if self._stage is Stage.MEETING else self._order.decision

    @property
    def ledger(self) -> Ledger:
        return self._course.place.ledger if self._course is not None else super().ledger

    def sum(self, values: list[float]) -> list[float]:
        self._require_meeting("sum()")
        return super().sum(values)

    def barrier(self) -> None:
        self._require_meeting("barrier()")
        super().barrier()

    def evaluation(self, loss: float = math.nan, accuracy: float = math.nan) -> None:
        self.finish_step()
        self._trace.evaluation(self._next_update, self._now(), loss, accuracy)

    def state_dict(self) -> dict[str, Any]:
        self._require_meeting("state_dict()")
        return {**super().state_dict(), "updates": self._next_update}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if self._course is not None:
            raise Error("load_state_dict() after the first batch; the shards have begun")
        super().load_state_dict(saved)
        self._next_update = saved.get("updates", self._replica.step)  # the log of a job in step counts steps, too

    def save(self, path: str | os.PathLike[str]) -> None:
        self._require_meeting("save()")
        if self._course is not None:
            mine = [dict(updater.learned) for updater in self._course.updaters]  # type: ignore[attr-defined]
            shard_optimizer.gather(
                self._optimizers[0], self._parameters, self._course.layout, self._world.gather_objects(mine)
            )
        super().save(path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        if self._course is not None:
            raise Error("restore() after the first batch; the shards have begun")
        super().restore(path)

    def close(self) -> None:
        if self._stage is Stage.COMPUTED:
            self.finish_step()
        self._let_go(orderly=True)
        super().close()

    def _let_go(self, orderly: bool) -> None:
        self._stage = Stage.MEETING
        if self._course is not None:
            self._course.close(orderly)
        for hook in self._hooks:
            hook.remove()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._let_go(orderly=False)  # the others take this worker for lost
        super().__exit__(kind, error, trace)
