"""A job that goes in rounds (sync="local"), for slow networks: this file ties core's rounds to PyTorch.

One round of H global batches, which is a step of the replica:
  a) everybody remembers parameters, buffers and the state of its optimizers;
  b) the loader hands out this worker's share of the round in H batches, and optimizer.step() takes local steps: nothing
     is exchanged;
  c) when the loader goes on behind the last of them, what was measured goes round; all get there together, since
     shares are dealt by speed;
  d) the changes of the parameters are averaged, weighted by samples, and the outer optimizer takes the step; buffers
     are averaged.

If a worker is lost, or memory runs out, the round did not happen: everybody goes back to a), and the same samples are
dealt again to those who are left. Who still computes hears of it before its next local step, if a second or more has
passed since it last asked. The state of the optimizers stays each worker's own.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import nn

from isochron._core import StepPlan, StepReport
from isochron.errors import Error, NonFiniteError, PeerError
from isochron.torch.finite import all_finite
from isochron.torch.job import Job
from isochron.torch.micro_batches import Division
from isochron.torch.served_models import ServedModels
from isochron.torch.source import MapSource, Share
from isochron.torch.world import is_peer_failure

BUCKET_BYTES = 32 << 20  # that are averaged at a time


class LocalModels(ServedModels):
    """Models whose changes are averaged."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._starts: list[tuple[nn.Parameter, torch.Tensor]] = []  # with their values at the start of the round

    def add(self, model: nn.Module) -> nn.Module:
        model = super().add(model)
        self._starts += [(one, one.detach().clone()) for one in model.parameters() if one.requires_grad]
        self._copies = [*self._starts, *((one, one.detach().clone()) for each in self.models for one in each.buffers())]
        return model

    def keep(self, model: nn.Module) -> nn.Module:
        raise ValueError(
            f"prepare() got a {type(model).__name__} that averages another model, with sync 'local'; permitted: with "
            "sync 'bsp', since everybody's would be another one"
        )

    def finite(self) -> bool:
        return all_finite([parameter.detach() for parameter, _ in self._starts])

    @torch.no_grad()
    def average_changes(self, weight: float) -> None:
        """Leaves the parameters as at the start of the round and the change that all have made in it, with the sign
        turned, as their gradients. Collective."""
        bucket: list[tuple[nn.Parameter, torch.Tensor]] = []
        size = 0
        for one in self._starts:
            wide = torch.promote_types(one[0].dtype, torch.float32)
            if bucket and (size >= BUCKET_BYTES or one[0].dtype != bucket[0][0].dtype):
                self._average_bucket(bucket, weight)
                bucket, size = [], 0
            bucket.append(one)
            size += one[0].numel() * wide.itemsize
        if bucket:
            self._average_bucket(bucket, weight)

    def _average_bucket(self, bucket: list[tuple[nn.Parameter, torch.Tensor]], weight: float) -> None:
        wide = torch.promote_types(bucket[0][0].dtype, torch.float32)
        mine = torch.cat([(start.to(wide) - one.to(wide)).flatten() for one, start in bucket]).mul_(weight)
        total = self._world.reduce(self._world.where_exchanged(mine)).to(mine.device)
        for (one, start), change in zip(bucket, total.split([one.numel() for one, _ in bucket])):
            one.copy_(start)
            one.grad = change.view(one.shape).to(one.dtype)


@dataclass
class Round:
    plan: StepPlan
    parts: list[tuple[int, int]]  # positions of the batches that are still to be handed out
    optimizers: list[Any]  # their states at the start of the round; empty: it cannot be undone
    others: list[Any]
    part: tuple[int, int] = (0, 0)  # of the batch that is out
    taken: int = 0
    losses: list[torch.Tensor] = field(default_factory=list)  # times their items
    items: float = 0.0


class LocalJob(Job):
    """What Job() makes of sync="local"."""

    def __init__(self, global_batch: int, **options: Any) -> None:
        super().__init__(global_batch, **options)
        self._models: LocalModels = LocalModels(self._world, self._statistics, self._stopwatch, self.options)
        self._prepared.models = self._models
        self._prepared.moves_others = True
        self._outer: list[torch.optim.Optimizer] = []  # one to a model, saved with the job
        self._round: Round | None = None

    @property
    def round_steps(self) -> int:
        """Global batches of the round under way, or of the coming one."""
        return self._round.plan.local_steps if self._round is not None else self._replica.round_steps

    def prepare(self, *things: Any) -> Any:
        """As in step, but models are not wrapped, and BatchNorm uses this worker's own samples."""
        known = len(self._models.models)
        prepared = super().prepare(*things)
        for model in self._models.models[known:]:
            trained = [one for one in model.parameters() if one.requires_grad]
            if trained:
                self._outer.append(self._make_outer(trained))
                self._prepared.others.append(self._outer[-1])
        self._prepared.catch_up()
        return prepared

    def _make_outer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        nesterov = self.options.outer == "nesterov"
        rate = self.options.outer_lr or (0.7 if nesterov else 1.0)
        return torch.optim.SGD(
            parameters, lr=rate, momentum=self.options.outer_momentum if nesterov else 0.0, nesterov=nesterov
        )

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Whether numbers are finite is looked at when the round ends."""

    def accumulate(self, steps: int) -> NoReturn:
        raise ValueError(f"accumulate({steps!r}) with sync 'local'; permitted: with sync 'bsp'")

    # Local steps.

    def _begin_step(self) -> Any:
        self.finish_step()
        while not self.stopping and self.epoch == self._loop_epoch:
            if self._round is None:
                try:
                    self._begin_round()
                except Exception as error:
                    if not is_peer_failure(error):
                        raise
                    self._recover(error)
                    continue
            assert self._round is not None
            if not self._round.parts:  # this worker has no samples of it
                self._end_round()
                continue
            try:
                self._world.look_after_others()
            except PeerError as error:
                self._recover(error)
                continue
            try:
                return (self._take_part(self._round),)
            except Exception as error:
                self._abandon()
                self._give_up_sample(error)
        return None

    def _begin_round(self) -> None:
        self._require_prepared()
        assert self._source is not None
        undoable = self._may_undo
        self._models.remember()
        if isinstance(self._source, MapSource):
            self._source.compare_orders()
        optimizers, others = (
            [copy.deepcopy(one.state_dict()) for one in these] if undoable else []
            for these in (self._optimizers, self._prepared.others)
        )
        self._rate.apply(self._optimizers, self.decision.learning_rate_factor)
        self._world.watch_gradients()
        self._world.take_waits()
        self._stopwatch.start()
        most = self._loader_options.max_steps
        left = 0 if most is None else most * self.options.global_batch - self._replica.position
        plan = self._replica.plan(most=left)
        self._round = Round(plan, plan.parts, optimizers, others)

    def _take_part(self, under_way: Round) -> Any:
        assert isinstance(self._source, MapSource)
        plan = under_way.plan
        if self.options.reseed:
            self._reseed(self.step, self._world.rank, under_way.taken)
        if self._step_file is not None:
            before = self.epoch * self._source.steps_per_epoch + plan.position // self.options.global_batch
            self._step_file.publish(before + under_way.taken)
        under_way.part = under_way.parts.pop(0)
        under_way.taken += 1
        batch = self._source.take_part(plan, *under_way.part)
        self._share = Share(plan, plan.batches, batch, stand_in=False)
        self._statistics.given_up = False
        return self._hand_out(batch)

    @property
    def _my_count(self) -> int:
        if self._round is None:
            return 0
        first, last = self._round.part
        return last - first if self._share is not None else self._round.plan.batch

    def positions(self, rows: int) -> list[int] | None:
        """As in step, of the local batch."""
        if self._round is None or self._share is None:
            return list(range(rows))
        first, last = self._round.part
        mine = range(first, last)[self._first_row :][: self._replica.chunk_size or None]
        return list(mine) if len(mine) == rows else None

    def _loss_weight(self, items: float, reduction: str) -> float:
        """The change is weighted in place of the loss: a mean stays as it is. A sum is that over all workers."""
        assert self._round is not None
        return 1.0 if reduction == "mean" else self._round.plan.step_size / max(self._round.plan.batch, 1)

    def _compute(self, batch: Division, reduction: str, scaler: Any, arguments: dict[str, Any]) -> None:
        items = self._my_count if batch.items is None else batch.items
        weight = self._loss_weight(items, reduction)
        losses = []
        for part in batch.parts:
            share = part.share if reduction == "mean" else 1.0
            self._mark_dynamic(part.inputs)
            self._first_row = part.first
            losses.append(self._pass(batch.loss_of(*part.inputs), weight * share, scaler, arguments) * share)
        self._first_row = 0
        loss = sum(losses[1:], losses[0])
        mean = loss if reduction == "mean" else loss / max(self._my_count, 1)
        self._end_computing(mean if self._loss is None else mean + self._loss, items)

    def _compute_again(self, counted: bool) -> None:
        self._several = True

    @property
    def _saw_gradients(self) -> bool:
        return self._models.have_gradients

    def finish_step(self) -> None:
        """The local step is done; behind the last one of a round, all come together."""
        if self._share is not None:
            if not self._computed:
                if not self._scales_itself:
                    raise Error(self._reason_for_no_backward())
                self._knows_loss()
                self._end_computing(self._loss, self._my_count)
            assert self._round is not None
            said = self._said_loss if self._said_loss is not None else self._loss
            if said is not None:
                self._round.losses.append(said.detach() * self._items)
            self._round.items += self._items
            self._close_step()
        if self._round is not None and self._round.taken and not self._round.parts:
            self._end_round()

    # The end of a round.

    def _end_round(self) -> None:
        assert self._round is not None
        self._stop_clock()
        self._rate.restore()
        self._items = self._round.items
        losses = self._round.losses
        self._loss = sum(losses[1:], losses[0]) / self._items if losses and self._items else None
        looks = self.options.on_nonfinite != "ignore"
        self._group.finite = not looks or self._models.finite()
        try:
            reports = self._gather_reports()
            if looks and not all(report.finite for report in reports):
                self._refuse_round(reports)
            else:
                self._average(reports)
        except Exception as error:
            if not is_peer_failure(error):
                raise
            self._recover(error)
            return
        self._finished = self._now()
        self._complete(reports)
        self._round = None

    @torch.no_grad()
    def _average(self, reports: list[StepReport]) -> None:
        began = time.perf_counter()
        if self._world.size > 1 or self.options.outer != "average" or self.options.outer_lr:
            weight = self._replica.average_weight(reports)
            self._models.average_changes(weight)
            self._models.average_buffers(self._items)
            self._world.await_gradients()
            for outer in self._outer:
                outer.step()
                outer.zero_grad()
        self._exchange_seconds = time.perf_counter() - began

    def _refuse_round(self, reports: list[StepReport]) -> None:
        verdict = self._replica.judge(reports, gradient_is_finite=False)
        if self.options.on_nonfinite == "stop":
            self._undo()
            raise NonFiniteError(f"{verdict.message}; model and optimizer are as before the round")
        self._left_out = True
        self._restore_optimizers()

    # Rounds that do not happen.

    def _restore_optimizers(self) -> None:
        assert self._round is not None
        for these, saved in ((self._optimizers, self._round.optimizers), (self._prepared.others, self._round.others)):
            for one, state in zip(these, saved):
                one.load_state_dict(state)

    def _undo(self) -> None:
        if self._round is not None:
            self._rate.restore()
            self._restore_optimizers()
            self._round = None
        super()._undo()

    def _require_no_round(self, what: str) -> None:
        self.finish_step()
        if self._round is not None:
            done = f"{self._round.taken} of {self._round.plan.local_steps} local steps"
            raise Error(f"{what} within a round, after {done}; permitted: between two rounds, as behind a loop")

    def end_epoch(self) -> None:
        self._require_no_round("end_epoch()")
        super().end_epoch()

    def state_dict(self) -> dict[str, Any]:
        self._require_no_round("state_dict()")
        return super().state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._require_no_round("load_state_dict()")
        super().load_state_dict(saved)

    def close(self) -> None:
        """A round that is not finished did not happen."""
        if self._round is not None and not self._round.parts and self._computed:
            self.finish_step()
        if self._round is not None:
            self._undo()
        super().close()
