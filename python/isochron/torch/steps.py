"""The step protocol of core (_core.Replica) as PyTorch runs it: what Job builds on.

The replica says what the coming step is and what follows from what the workers report; this class computes, measures,
brings the reports round, and undoes what PyTorch has done of a step that does not happen.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from isochron import _core
from isochron._core import Decision, Replica, mix_key
from isochron.errors import Error, NonFiniteError, PeerError, SampleError
from isochron.torch import cluster, collate, collectives, state
from isochron.torch.accumulation import Group
from isochron.torch.batch_norm import Statistics
from isochron.torch.finite import OwnGradients, all_finite, drop_gradients, gradients_of
from isochron.torch.job_datasets import Datasets
from isochron.torch.memory import is_out_of_memory
from isochron.torch.optimizer_steps import OptimizerSteps
from isochron.torch.options import JobOptions
from isochron.torch.parallel import Models
from isochron.torch.rate import LearningRate
from isochron.torch.recovery import Recovery
from isochron.torch.signals import StopSignal
from isochron.torch.source import LoaderOptions, Share
from isochron.torch.stopwatch import Stopwatch
from isochron.torch.trace import Trace
from isochron.torch.world import World, is_peer_failure

log = logging.getLogger("isochron")


class Steps(Datasets):
    """One worker's steps."""

    def __init__(self, options: JobOptions, device: torch.device, world: World) -> None:
        super().__init__()
        self.options = options
        self.device = device
        self._world = world
        self._replica = self._new_replica()
        self._statistics = Statistics(world)
        self._stopwatch = Stopwatch(world.waits)
        self._models = Models(world, self._statistics, self._stopwatch, options)
        self._prepared = state.Prepared(world, self._models)
        self._optimizers = self._prepared.optimizers
        self._hooks: list[Any] = []  # of the optimizers
        self._has_scaler = False
        self._rate = LearningRate()
        self._trace = Trace(options)
        self._step_file = cluster.find_step_file() if self.is_first else None
        self._signals = StopSignal() if options.handle_signals else None
        self._group = Group()
        self._record: _core.StepRecord | None = None
        self._update: _core.UpdateRecord | None = None
        self._meter = _core.Meter(options.global_batch, self._replica.workers)
        self._stop_wanted = False
        self._several = False  # backward passes to a batch
        self._missed_loss = False  # in some step
        self._dropouts = 0  # layers of models
        self._exchange_seconds = 0.0  # of the round before, with sync="local"
        self._optimizer_steps = OptimizerSteps(self._models)
        self._recovery = Recovery(world, self._replica, self._prepared, self._optimizer_steps, self._now, self._undo,
                                  self._note, self._adopt)  # fmt: skip
        self._forget_step()
        world.barrier()
        world.take_waits()
        self._began = time.perf_counter()
        if world.has_group:
            collectives.listen(world.waits)

    def _forget_step(self) -> None:
        self._share: Share | None = None
        self._synchronises = True
        self._scales_itself = False
        self._computed = False  # the gradients are there; by the next call the optimizer has used them
        self._left_out = False  # and it has not, since they are not finite
        self._message = b""  # this worker's report
        self._exchange: Callable[[], torch.Tensor] | None = None
        self._reports: list[_core.StepReport] | None = None
        self._own: OwnGradients | None = None
        self._items = 0.0
        self._loss: torch.Tensor | None = None
        self._said_loss: torch.Tensor | None = None  # by log_loss()
        self._finished = 0.0
        self._waits = 0  # exchanges inside forward and backward
        self._divisible = False  # the batch can be computed in micro-batches
        self._first_row = 0  # of the batch, in the micro-batch that is computed

    # Where it is.

    @property
    def rank(self) -> int:
        """Among the workers that are there; changes when one is lost."""
        return self._world.rank

    @property
    def size(self) -> int:
        """How many workers there are; changes when one is lost."""
        return self._world.size

    @property
    def is_first(self) -> bool:
        """Whether this worker has rank 0, which writes what one worker writes for all."""
        return self._world.rank == 0

    @property
    def step(self) -> int:
        """The number of the step under way, or of the coming one between two steps."""
        return self._replica.step

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, from 0."""
        return self._replica.epoch

    def positions(self, rows: int) -> list[int] | None:
        """Where the samples of the batch, or of the micro-batch that is computed, are in the epoch's order; None: there
        are not so many. A batch that counts for nothing may have any number."""
        share = self._share
        if share is None or share.stand_in:
            return list(range(rows))
        mine = [one for one in share.plan.positions(self._world.rank) if one not in share.skipped]
        last = self._first_row + (self._replica.chunk_size or len(mine))
        mine = mine[self._first_row : last]
        return mine if len(mine) == rows else None

    @property
    def decision(self) -> Decision:
        """The one for the step under way, or the coming one."""
        return self._replica.decision

    @property
    def stopping(self) -> bool:
        """Whether the loops of all workers end, after stop() or a signal on any of them."""
        return self._replica.stopping

    @property
    def stop_signal(self) -> int:
        """The signal that asked for it on any worker; 0: none."""
        return self._replica.stop_signal

    def _new_replica(self) -> Replica:
        options = self.options
        mine = options.settings.introduction(self.device.type, first=self.is_first)
        told = self._world.gather_words([mine.encode(), options.micro_batch])
        everybody = [_core.Introduction.decode(text) for text, _ in told]
        self._divides = any(size for _, size in told)  # some worker computes micro-batches
        cpu, chunk_size = self.device.type == "cpu", options.micro_batch
        return Replica(options.settings, _core.agree(everybody), self._world.rank, cpu=cpu, chunk_size=chunk_size)

    def _open_trace(self, go_on: bool) -> None:
        assert self._source is not None
        size = self._source.samples_per_epoch
        others = len(self._datasets) + len(self._saved_data) > 1
        self._trace.open(self.is_first, size, self._line, self._replica.workers, go_on, others)

    @property
    def _line(self) -> int:
        """The number of the next line of the log: a step has one, and so has an update."""
        return self.step

    def _rethrow_failure(self) -> None:
        if self._world.failure is not None:
            raise self._world.failure

    def give_up_step(self, error: BaseException) -> None:
        """In place of backward(), by loops that compute the loss themselves and caught `error`: if memory ran out or a
        worker was lost, the step will be dealt again, smaller for whom it was too much. Anything else is raised."""
        can_be_smaller = self._world.size > 1 or self._divisible
        if is_out_of_memory(error) and self._awaits_backward and can_be_smaller:
            can_be_redone = self._recovery.is_possible or not self._world.has_group
            if not can_be_redone or not self._replica.abandon_for_memory(self._divisible):
                raise error  # there is nothing smaller, or the others cannot be called back
            self._recovery.out_of_memory = True
        elif self._world.failure is None and not is_peer_failure(error):
            raise error
        self._recover(self._world.failure or error)

    # Steps.

    def _begin_step(self) -> Any:
        """The next batch in a tuple; None if the loop is over."""
        self.finish_step()
        assert self._source is not None
        while not self.stopping and self.epoch == self._loop_epoch:
            self._require_prepared()
            if not self._group.begun and self._may_undo:
                self._models.remember()
            try:
                self._models.begin_step()
            except RuntimeError as error:
                self.give_up_step(error)
                continue
            if self.options.reseed:
                self._reseed(self.step, self._world.rank)
            self._rate.apply(self._optimizers, self.decision.learning_rate_factor)
            self._world.watch_gradients()
            self._world.take_waits()
            self._stopwatch.start()
            try:
                share = self._source.take()
            except Exception as error:
                if is_peer_failure(error):
                    self.give_up_step(error)
                    continue
                self._abandon()
                self._give_up_sample(error)
                continue
            if share is None:
                self._end_epoch()
                break
            self._share = share
            self._statistics.given_up = False
            self._own = OwnGradients(self._models.parameters()) if share.plan.diagnose else None
            self._statistics.counts = not share.stand_in
            self._statistics.all_count = all(share.counts)
            if self._step_file is not None:
                self._step_file.publish(self.step)
            return (self._hand_out(share.batch),)
        return None

    def _require_prepared(self) -> None:
        self._prepared.require_all()
        if not self._models.models:
            raise Error("a batch of the loader before prepare()")

    @property
    def _may_undo(self) -> bool:
        options = self.options
        return self._world.elastic or options.on_nonfinite != "ignore" or options.on_bad_sample == "skip"

    def _reseed(self, *key: int) -> None:
        seed = mix_key([self.options.seed, *key])
        torch.random.default_generator.manual_seed(seed)  # torch.manual_seed would look for GPUs at every step
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _hand_out(self, batch: Any, options: LoaderOptions | None = None) -> Any:
        options = options or self._loader_options
        if options.pin_memory and torch.cuda.is_available():
            batch = collate.pin(batch)
        if self._models.moved if options.to_device is None else options.to_device:
            batch = collate.move(batch, self.device)
        self._mark_dynamic(batch)
        return batch

    def _mark_dynamic(self, batch: Any) -> None:
        """For torch.compile."""
        if self.options.dynamic and "torch._dynamo" in sys.modules:
            for tensor in collate.tensors_of(batch):
                if tensor.dim() > 0 and tensor.shape[0] > 1:
                    torch._dynamo.maybe_mark_dynamic(tensor, 0)

    def _add_loss(self, loss: torch.Tensor) -> None:
        self._loss = loss if self._loss is None else self._loss + loss

    def _stop_clock(self) -> None:
        """Backward is over, as far as is known."""
        self._stopwatch.stop()
        self._waits = self._world.waits.count

    def _end_computing(self, loss: torch.Tensor | None, items: float) -> None:
        self._loss, self._items = loss, items
        self._finished = self._now()
        self._computed = True

    def _send(self) -> None:
        self._measure()
        self._exchange = self._world.start_gather(torch.frombuffer(bytearray(self._message), dtype=torch.uint8))

    def _measure(self) -> None:
        if self._replica.phase != "computing":
            return
        seconds, waited, reductions = self._stopwatch.measure(self._world.take_waits())
        counts = self._my_count > 0
        said = self._said_loss if self._said_loss is not None else self._loss
        loss = float(said) if said is not None and counts else 0.0
        self._group.finite = self._group.finite and math.isfinite(loss)
        measured = _core.StepReport()
        measured.start = self._stopwatch.started - self._began
        measured.seconds, measured.waited = seconds, waited
        measured.sync_points = self._waits + reductions + 1
        measured.usage = self._stopwatch.usage(self.device, seconds + waited)
        measured.loss, measured.items = loss, self._items if counts else 0.0
        measured.finite = self._group.finite and (self._own is None or self._own.finite)
        measured.stop = self._stop_wanted
        measured.signal = self._signals.received() if self._signals is not None else 0
        measured.exchange = self._exchange_seconds
        self._message = self._replica.report(measured).to_bytes()

    def _gather_reports(self) -> list[_core.StepReport]:
        if self._reports is None:
            self._measure()
            self._rethrow_failure()
            if self._exchange is None:
                self._send()
            assert self._exchange is not None
            self._reports = _core.read_reports(self._exchange().numpy().tobytes())
        return self._reports

    def finish_step(self) -> None:
        """Waits for the reports of a step whose optimizer step is done; the loader, save() and close() do it by
        themselves."""
        if self._share is None:
            return
        if not self._computed:
            if not self._scales_itself:
                raise Error(self._reason_for_no_backward())
            self._end_scaled()
        self._models.check_use(self._stopwatch.newly_seen())
        self._rate.restore()
        try:
            reports = self._gather_reports()
        except Exception as error:
            if not is_peer_failure(error):
                raise
            self._recover(error)
            return
        self._complete(reports)

    def _complete(self, reports: list[_core.StepReport]) -> None:
        if self._left_out:
            self._models.undo()
        finish = self._replica.leave_out if self._left_out else self._replica.complete
        outcome = finish(reports, self._finished, self._now())
        self._finish_beside(outcome.record)
        self._recovery.attempts = 0
        if self._synchronises:
            self._group.end()
            self._optimizer_steps.end()
        else:
            self._group.done += 1
        self._close_step()
        self._note(outcome.record)
        self._tell(outcome.events)
        if self.options.on_nonfinite == "stop" and outcome.non_finite and not self._optimizers:
            workers = self._replica.workers
            names = ", ".join(f"{workers[rank].name} (rank {rank})" for rank in outcome.non_finite)
            raise NonFiniteError(f"step {outcome.record.step}: the loss is not finite on {names}")

    def _end_scaled(self) -> None:
        """Ends a step whose losses the loop has scaled by itself."""
        self._stop_clock()
        self._end_computing(self._loss, self._weighed_items if self._knows_loss() else 0.0)

    def _knows_loss(self) -> bool:
        """Whether a step whose losses the loop has scaled by itself has one for the log; warns once if not."""
        known = self._loss is not None or self._said_loss is not None
        if not known and not self._missed_loss and self.is_first:
            log.warning(
                "the loss of step %d is not in the log, since job.weight was not multiplied with it as it is; write "
                "loss * job.weight, or say it: job.log_loss(loss)", self._line)  # fmt: skip
        self._missed_loss = self._missed_loss or not known
        return known

    def _reason_for_no_backward(self) -> str:
        if self._saw_gradients:
            return (
                "gradients were computed without the job; call job.backward(loss) in place of loss.backward(), or "
                "(loss * job.weight).backward()"
            )
        what = "the loader went on to the next batch before job.backward(loss)"
        if not torch.is_grad_enabled():
            advice = "each batch of it is a step; evaluate with a DataLoader of your own"
            return f"{what}, with gradients disabled: {advice}"
        return (
            f"{what}; for evaluation or a look at the data take a DataLoader of your own, to leave a batch out call "
            "job.backward(0.0 * loss), and behind a loop that was left before backward job.end_epoch()"
        )

    @property
    def _saw_gradients(self) -> bool:
        return self._stopwatch.saw_gradients

    def _close_step(self) -> None:
        for one in self._datasets:
            if one.beside is not None:
                one.beside.taken = ()
        if self._own is not None:
            self._own.close()
        self._forget_step()

    # Steps that do not happen.

    @torch.no_grad()
    def _judge(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        """Before a step of the optimizer: if the gradient is not finite, it finds none, or this raises NonFiniteError.
        The average is the same on all workers, so all are here."""
        if self._share is None or not (self._computed or self._scales_itself) or not self._synchronises:
            return
        if self._scales_itself and self._is_lost():
            drop_gradients(optimizer)
            return
        if getattr(optimizer, "found_inf", None) is not None:
            return  # a GradScaler judges within the step
        # All at once, before the first of several takes its step, unless losses come one by one or a scaler judges.
        apart = self._scales_itself or self._has_scaler or self._several
        gradients = [one for each in ([optimizer] if apart else self._optimizers) for one in gradients_of(each)]
        finite = not self._left_out and all_finite(gradients)
        if self._models.sharded:
            finite = self._world.sum([float(not finite)])[0] == 0.0
        if finite:
            return
        if not self._left_out:
            self._refuse_gradient()
        drop_gradients(optimizer)

    def _begin_optimizer_step(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        if self._share is not None:
            self._optimizer_steps.before(optimizer)

    def _end_optimizer_step(self, *arguments: Any) -> None:
        if self._share is not None:
            self._optimizer_steps.after(another=self._several or len(self._optimizers) > 1)

    def _is_lost(self) -> bool:
        """The step, with a worker that was in it; the job goes on without it."""
        try:
            self._world.await_gradients()
        except PeerError as error:
            self._computed = False  # the optimizer will not take it
            self._recover(error)
            return True
        return False

    def _refuse_gradient(self) -> None:
        if not self._computed:
            self._end_scaled()
        try:
            reports = self._gather_reports()
        except Exception as error:
            if not is_peer_failure(error):
                raise
            self._computed = False  # the optimizer will not take it
            self._recover(error)
            return
        verdict = self._replica.judge(reports, gradient_is_finite=False)
        again = verdict.action == "redo" and not self._group.begun and not self._scales_itself
        if again:
            self._replica.redo(reports, self._now())
            self._undo()
        elif self.options.on_nonfinite == "stop":
            self._undo()
            raise NonFiniteError(f"{verdict.message}; model and optimizer are as before the step")
        else:
            self._left_out = True  # finish_step() says so

    def _undo(self) -> None:
        """The step under way, and those before it whose gradients are still accumulating: the lost ones' part of them
        is lost, too."""
        self._rate.restore()
        self._models.undo()
        self._optimizer_steps.begin_again()
        self._close_step()
        self._statistics.given_up = True
        if self._group.beginning and self._group.begun:
            message = "to the first of the batches that were being accumulated"
            self._tell(self._replica.roll_back(self._group.beginning, message, self._now()))
        self._abandon()
        self._group.end()

    def _abandon(self) -> None:
        if self._replica.phase != "between":
            self._replica.abandon()

    def _recover(self, error: BaseException) -> None:
        taken = self._computed and self._synchronises
        if taken:
            self._measure()
            self._optimizer_steps.end()
        self._rate.restore()
        bad = self._recovery.recover(error, taken)
        self._close_step()
        self._statistics.given_up = True
        self._group.end()
        if bad and self.options.on_bad_sample == "stop":
            raise bad[0]
        self._skip_samples(bad)

    def _give_up_sample(self, error: Exception) -> None:
        """It would fail wherever it is dealt to: so all hear of it before anybody goes on."""
        if isinstance(error, SampleError) and self._world.size == 1 and self.options.on_bad_sample == "skip":
            self._undo()
            self._skip_samples([error])
        elif isinstance(error, SampleError) and self._world.size > 1 and self._recovery.is_possible:
            self._recovery.bad_sample = error
            self._recover(error)
        else:
            raise error

    def _skip_samples(self, bad: list[SampleError]) -> None:
        """The same on all workers. The samples count as used, and the mean is over the others."""
        for error in bad:
            epoch, position = error.place
            self._source.skip(epoch, position)  # type: ignore[union-attr]
            message = f"position {position} of epoch {epoch}: {str(error).splitlines()[0]}"
            worker = self._replica.workers[0].id
            self._tell([_core.EventRecord(self.step, self._now(), _core.Event.SKIPPED, worker, message)])

    def _adopt(self, events: list[_core.EventRecord]) -> None:
        if self._trace_begun:
            self._open_trace(go_on=True)  # the first worker may be another one now
        self._tell(events)

    def _note(self, record: _core.StepRecord) -> None:
        self._record = record
        self._meter.add(record)
        self._trace.step(record)

    def _tell(self, events: list[_core.EventRecord]) -> None:
        for event in events:
            self._meter.add(event)
            self._trace.event(event)

    def _now(self) -> float:
        return time.perf_counter() - self._began

    def _replan(self) -> None:
        """The step under way, as it was."""
        assert self._share is not None and self._source is not None
        self._replica.abandon()
        self._source.plan_again(self._share.plan)

    @property
    def _has_batch(self) -> bool:
        return self._share is not None

    @property
    def _awaits_backward(self) -> bool:
        return self._share is not None and not self._computed

    @property
    def _awaits_gradients(self) -> bool:
        """A loop that scales its losses by itself does not say which of its passes is the last."""
        return self._awaits_backward and not (self._scales_itself and self._saw_gradients)

    @property
    def _weighed_items(self) -> float:
        """What `weight` takes the loss for a mean over: samples, or what the loader's count= says."""
        share = self._share
        if share is None or share.all_items is None or share.items is None or self.options.weighting == "mean":
            return float(self._my_count)
        return share.items

    @property
    def _my_count(self) -> int:
        return self._share.counts[self._world.rank] if self._share is not None else 0
