"""A job whose workers are not in step (sync="asp", "ssp"): isochron.served carries it, this file ties it to PyTorch.

One iteration:
  a) the loader asks the coordinator for samples, pulls the parameters from the shards of all workers, and hands out a
     batch;
  b) backward() computes this worker's own gradients;
  c) optimizer.step() sends them, as they are then (clipped, unscaled), with the present settings of their groups; the
     shards take the step, and the gradients are dropped, so that the optimizer itself has nothing to do;
  d) the loader waits for the shards' answers when it goes on.

At the end of an epoch is a barrier: everybody has the same parameters then, and evaluation, save() and state_dict() are
possible there.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from isochron import _core
from isochron._core import Assignment, UpdateRecord, lay_out
from isochron.errors import Error, PeerError, TimeoutError
from isochron.served.job import ServedJob
from isochron.served.session import Owner, Session
from isochron.served.sockets import Sockets
from isochron.torch import shard_optimizer
from isochron.torch.finite import all_finite, drop_gradients, gradients_of
from isochron.torch.job import Job
from isochron.torch.loader import Loader
from isochron.torch.loss_weight import LossWeight
from isochron.torch.micro_batches import Division
from isochron.torch.recovery import MOST_ATTEMPTS
from isochron.torch.served_models import ServedModels
from isochron.torch.shard_optimizer import SliceUpdater
from isochron.torch.source import MapSource

log = logging.getLogger("isochron")


class AsyncJob(ServedJob, Job):
    """What Job() makes of sync="asp" and sync="ssp"."""

    def __init__(self, global_batch: int, **options: Any) -> None:
        super().__init__(global_batch, **options)
        self._models: ServedModels = ServedModels(self._world, self._statistics, self._stopwatch, self.options)
        self._prepared.models = self._models
        self._parameters: list[nn.Parameter] = []  # that are trained, in the order of the layout
        self._next_update = 0
        self._compute_noted = False

    @property
    def _busy(self) -> bool:
        """A batch is out, or its gradients are on their way."""
        return self._session is not None and (self._session.computing or self._session.pushing)

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

    @property
    def _line(self) -> int:
        return self._next_update

    @property
    def _awaits_backward(self) -> bool:
        return self._session is not None and self._session.computing and not self._compute_noted

    @property
    def _has_batch(self) -> bool:
        return self._awaits_backward

    @property
    def _my_count(self) -> int:
        return self._order.batch

    def loader(self, dataset: Any, **options: Any) -> Loader:  # type: ignore[override]
        """As in step, for whole epochs: nobody knows at which update an earlier end would be."""
        if options.get("max_steps") is not None:
            raise self._refusal("max_steps", "with sync 'bsp' or 'local'")
        return super().loader(dataset, **options)

    def end_epoch(self) -> NoReturn:
        raise self._refusal("end_epoch()", "with sync 'bsp' or 'local'")

    def _refusal(self, what: str, permitted: str) -> ValueError:
        return ValueError(f"{what} with sync '{self.options.sync}'; permitted: {permitted}")

    def backward(self, *arguments: Any, **options: Any) -> bool:
        """As in step, but once for a batch: it ends the time that the batch is said to have taken."""
        if self._busy and self._compute_noted:
            raise Error(
                f"a second backward() for a batch with sync '{self.options.sync}'; permitted: one backward() of the "
                "sum of the losses, or (loss * job.weight).backward() for each of them"
            )
        return super().backward(*arguments, **options)

    def _hear(self, mine: bool) -> list[bool]:
        """Others may be in the middle of an epoch."""
        return [mine]

    def _compute(self, batch: Division, reduction: str, scaler: Any, arguments: dict[str, Any]) -> None:
        """Gradients are those of this worker's samples afterwards; optimizer.step() sends them."""
        samples = self._my_count
        self._items = samples if batch.items is None else batch.items
        # In rounds the shards weight by samples and divide by those of the round.
        in_sum = reduction == "sum" and self._order.round_samples > 0
        weight = self._order.round_samples / samples if in_sum else 1.0
        loss = 0.0
        for part in batch.parts:
            share = part.share if reduction == "mean" else 1.0
            loss += float(self._pass(batch.loss_of(*part.inputs), weight * share, scaler, arguments)) * share
        self._note_computed(loss if reduction == "mean" else loss / max(samples, 1))

    def _note_computed(self, loss: float) -> None:
        if self._compute_noted:
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = time.perf_counter() - self._stopwatch.started
        said = self._said_loss if self._said_loss is not None else self._loss
        if self._scales_itself:
            self._knows_loss()
        usage = self._stopwatch.usage(self.device, seconds)
        self._running.computed(loss if said is None else float(said), usage)
        self._compute_noted = True

    @property
    def weight(self) -> float:
        """1: an update is the mean over this worker's samples."""
        if not self._busy:
            raise Error("weight without a batch of the loader")
        self._require_undivided("weight")
        self._scales_itself = True
        return LossWeight(1.0, self._add_loss)

    def log_loss(self, loss: torch.Tensor | float) -> None:
        """As in step, before optimizer.step(), which sends the update."""
        if self._session is None or not self._session.computing:
            raise Error("log_loss() without a batch of the loader, or after optimizer.step(); permitted: between them")
        self._said_loss = torch.as_tensor(loss).detach()
        if self._compute_noted:
            self._session.log_loss(float(self._said_loss))

    def accumulate(self, steps: int) -> NoReturn:
        raise self._refusal(f"accumulate({steps!r})", "with sync 'bsp'")

    def give_up_step(self, error: BaseException) -> None:
        raise error

    # Iterations.

    def _begin_step(self) -> Any:
        self.finish_step()
        if self.stopping:
            return None
        self._prepared.require_all()
        if not self._models.models or not self._optimizers:
            sync = self.options.sync
            raise Error(f"a batch of the loader before prepare(), which with sync '{sync}' takes model and optimizer")
        if self._session is None:
            self._session = self._set_out()
        if self._at_barrier:
            if isinstance(self._source, MapSource):
                self._source.compare_orders()
            self._session.enter()
        while not self._at_barrier:
            try:
                self.finish_step()
                signal = self._signals.received() if self._signals is not None else 0
                order = self._session.next(1 + signal if signal else int(self._stop_wanted))
                if not order.barrier:
                    return (self._fetch(order),)
                self._session.reach_barrier()
                self._session.arrive(self._replica)
            except PeerError as error:
                self._recover(error)
        return None

    def _set_out(self) -> Session:
        """With what model and optimizer hold now."""
        assert self._source is not None
        optimizer, rank = self._optimizers[0], self._world.rank
        groups = [[one for one in group["params"] if one.requires_grad] for group in optimizer.param_groups]
        self._parameters = [parameter for group in groups for parameter in group]
        kinds = [[(str(one.dtype), one.element_size(), one.numel()) for one in group] for group in groups]
        layout = lay_out(kinds, self._world.size)
        updaters = shard_optimizer.cut(optimizer, self._parameters, layout, rank)
        agree = self._world.agree_on_barrier
        owner = Owner(self._gather, self._average, self._take_record, agree, self._restore_chunk)
        return Session(
            owner, self._replica, self.options, self._connect(), layout, updaters, self._next_update)  # fmt: skip

    def _connect(self) -> _core.TcpLink:
        return Sockets(self._world.rank, self._gather_words, None, self.options.timeout).connect()

    def _fetch(self, order: Assignment) -> Any:
        assert isinstance(self._source, MapSource)
        self._stopwatch.start()
        self._running.start_pull()
        with self._running.telling_others():
            batch = self._source.take_positions(order.first, order.last)
        self._running.finish_pull()
        self._take_values()
        if self.options.reseed:
            self._reseed(self.epoch, order.first)
        if self._step_file is not None:
            self._step_file.publish(self.step)
        self._scales_itself = self._compute_noted = False
        self._loss = self._said_loss = None
        self._items = float(order.batch)
        return self._hand_out(batch)

    def _strips(self, arrays: list[Any]) -> list[torch.Tensor]:
        """The parts of the strips that belong to the parameters, one by one."""
        layout = self._running.layout
        views = []
        for parameter, slot in zip(self._parameters, layout.slots, strict=True):
            width = parameter.element_size()
            part = torch.from_numpy(arrays[slot.strip][slot.first * width : slot.last * width])
            views.append(part.view(parameter.dtype).view(parameter.shape))
        return views

    @torch.no_grad()
    def _take_values(self) -> None:
        for parameter, values in zip(self._parameters, self._strips(self._running.values), strict=True):
            parameter.copy_(values)

    @torch.no_grad()
    def _push(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        """Before a step of the optimizer, which will find no gradient."""
        if self._session is None or not self._session.computing:
            return  # somebody steps between two batches: nothing is there to be sent
        self._note_computed(math.nan)
        if self.options.on_nonfinite != "ignore" and not all_finite(gradients_of(optimizer)):
            self._session.leave_out()
            drop_gradients(optimizer)
            return
        for parameter, into in zip(self._parameters, self._strips(self._session.gradients), strict=True):
            if parameter.grad is None:
                into.zero_()
            else:
                into.copy_(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
        groups = [shard_optimizer.settings_of(group, self._corrected_for) for group in optimizer.param_groups]
        self._session.send([groups[strip.group] for strip in self._session.layout.strips], self._items)
        drop_gradients(optimizer)

    @property
    def _saw_gradients(self) -> bool:
        return self._models.have_gradients

    def finish_step(self) -> None:
        """Waits until all shards have the update; the loader does it by itself."""
        if self._awaits_backward and not self._scales_itself:
            raise Error(self._reason_for_no_backward())
        while self._busy:
            self._note_computed(math.nan)
            try:
                self._running.finish()
            except PeerError as error:
                self._recover(error)

    def _take_record(self, update: UpdateRecord) -> None:
        """An update became known."""
        self._next_update = update.step + 1
        if update.worker.id == self._replica.workers[self._world.rank].id:
            self._update = update
        self._meter.add(update)
        self._trace.update(update, self._meter.last_samples_per_second)

    # Barriers.

    def _gather(self, mine: bytes) -> list[bytes]:
        with self._by_member():
            return self._world.gather_bytes(mine)

    def _gather_words(self, mine: Any) -> list[Any]:
        with self._by_member():
            return self._world.gather_words(mine)

    def _average(self, samples: int) -> None:
        self._take_values()
        with self._by_member():
            self._models.average_buffers(samples)

    @contextmanager
    def _by_member(self) -> Iterator[None]:
        """Errors of the world tell ranks of the default group; the session counts its members."""
        try:
            yield
        except PeerError as error:
            numbers = [peer.rank for peer in self._world.members]
            known = [(numbers.index(rank), host) for rank, host in zip(error.ranks, error.hosts) if rank in numbers]
            raise type(error)(str(error), [rank for rank, _ in known], [host for _, host in known]) from error

    # When somebody is lost, the session goes on among those who are left (isochron/server/session_recovery.cc).

    def _recover(self, error: BaseException) -> None:
        """Collective among those that are left. Raises the error if the job cannot go on without the lost."""
        session, world = self._running, self._world
        failure: PeerError = self._world.name_failure("an update", error)
        for _ in range(MOST_ATTEMPTS):
            if not world.elastic:
                raise failure
            log.warning("%s", failure)
            late = failure.ranks if isinstance(failure, TimeoutError) else ()
            suspects = {world.members[rank].rank for rank in (*late, *session.let_go())}
            world.give_up()
            self._recovery.come_together(tuple(suspects))
            try:
                session.take_up(self._replica.workers, world.rank, self._connect())
            except PeerError as another:
                failure = another
                continue
            if session.at_barrier:
                session.arrive(self._replica)
            return
        raise failure

    def _restore_chunk(self, chunk: int, values: np.ndarray) -> SliceUpdater:
        """For one that was lost with its worker: nothing of it has been learned."""
        layout = self._running.layout
        strip = layout.chunks[chunk].strip
        kinds = {slot.strip: one.dtype for one, slot in zip(self._parameters, layout.slots, strict=True)}
        tensor = torch.from_numpy(values.copy()).view(kinds[strip])
        return SliceUpdater(self._optimizers[0], layout.strips[strip].group, tensor)

    def _tell(self, events: list[Any]) -> None:
        """Their place in the log is that of the next update."""
        line = self._line
        super()._tell([_core.EventRecord(line, one.seconds, one.event, one.worker, one.words) for one in events])

    def _require_barrier(self, what: str) -> None:
        self.finish_step()
        super()._require_barrier(what)

    @property
    def step(self) -> int:
        return self._steps_dealt()

    def barrier(self) -> None:
        self._require_barrier("barrier()")
        super().barrier()

    def state_dict(self) -> dict[str, Any]:
        self._require_barrier("state_dict()")
        return {**super().state_dict(), "updates": self._next_update}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._require_unbegun("load_state_dict()")
        super().load_state_dict(saved)
        self._next_update = saved.get("updates", self._replica.step)  # the log of a job in step counts steps, too

    def save(self, path: str | os.PathLike[str]) -> None:
        self._require_barrier("save()")
        if self._session is not None:
            mine = {number: dict(updater.learned) for number, updater in self._session.updaters.items()}
            learned: dict[int, Any] = {}
            for part in self._world.gather_states(mine):
                learned |= part
            shard_optimizer.gather(self._optimizers[0], self._parameters, self._session.layout, learned)
        super().save(path)

    def close(self) -> None:
        if self._busy and self._compute_noted:
            self.finish_step()
        self._leave(orderly=True)
        super().close()

    def _leave(self, orderly: bool) -> None:
        super()._leave(orderly)
        for hook in self._hooks:
            hook.remove()
