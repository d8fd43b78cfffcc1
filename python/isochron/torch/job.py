"""A training job: this process is one of its workers. The twin of the C++ engine's Job.

One step, the same on all workers:
  a) all hold the same controller state, so all know the same split of B;
  b) the loader hands out this worker's slice of the epoch's permutation;
  c) backward() scales the mean loss by b_k K / B; the model's wrapper averages gradients while it computes;
  d) at the last own gradient the clock stops, and what was measured goes round in one small all-gather;
  e) it is waited for when the loader goes on, after the optimizer's step; the controller observes it, the ledger notes
     the samples: the step is finished.

When something fails inside a step, the step did not happen (recovery.py): backward() returns False and leaves no
gradients, so that the optimizer has nothing to do, and the loader hands out the same samples again.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from isochron._core import Controller, Ledger, MemoryCeilings, Worker, mix_key
from isochron.errors import Error, SampleError
from isochron.torch import cluster, collate, environment, state
from isochron.torch.accumulation import Group
from isochron.torch.batch_norm import Statistics
from isochron.torch.loader import Loader
from isochron.torch.memory import is_out_of_memory
from isochron.torch.options import JobOptions
from isochron.torch.parallel import Models
from isochron.torch.rate import LearningRate
from isochron.torch.recovery import give_up_sample, recover
from isochron.torch.report import EventRecord, Report, StepRecord, check_agreement, digest, make_record, refuse_numbers
from isochron.torch.signals import StopSignal
from isochron.torch.source import LoaderOptions, Share, Source, is_stream, make_source
from isochron.torch.standing import Standing
from isochron.torch.stopwatch import KnownSizes, Memory, Stopwatch
from isochron.torch.trace import Trace
from isochron.torch.world import World, is_peer_failure

log = logging.getLogger("isochron")


class Phase(enum.Enum):
    BETWEEN = enum.auto()  # two steps
    COMPUTING = enum.auto()  # a batch is out
    COMPUTED = enum.auto()  # its gradients are there; by the next call the optimizer has used them


class Job(Standing):
    """Takes the options of `JobOptions` as keywords. Collective: all workers make one, with the same shared options.

    Joins the process group that is there, or makes one from the variables of torchrun, Slurm or Open MPI, or is alone.
    Raises ValueError, on all workers, if they do not agree on what they share or their bounds cannot hold B. With
    sync="asp" or "ssp" it is an AsyncJob (async_job.py).
    """

    def __new__(cls, global_batch: int, **options: Any) -> Job:
        if cls is Job and options.get("sync") in ("asp", "ssp"):
            from isochron.torch.async_job import AsyncJob

            return super().__new__(AsyncJob)
        return super().__new__(cls)

    def __init__(self, global_batch: int, **options: Any) -> None:
        self.options = JobOptions(global_batch=global_batch, **options)
        cluster.take_defaults(self.options)
        self.options.validate()
        place = environment.find_place()
        self.device = self._choose_device(place)
        self._made_group = self._join(place)
        self._world = World(self.options.timeout, self.options.elastic)
        self.options.check_skipping(self._world.size, self._world.elastic)
        self._members = self._agree()  # by rank, with the bounds that they gave themselves
        self._next_id = len(self._members)
        self._controller = self._new_controller(self._members)
        self._decision = self._controller.decision
        self._ceilings = MemoryCeilings()
        self._statistics = Statistics(self._world)
        self._stopwatch = Stopwatch(self.device)
        self._memory = Memory(self.device)
        self._models = Models(self._world, self._statistics, self._stopwatch, self.options)
        self._optimizers: list[Any] = []
        self._others: list[Any] = []  # schedulers, scalers: saved with the job
        self._rate = LearningRate()
        self._trace = Trace(self.options)
        self._step_file = cluster.StepFile.find() if self.is_first else None
        self._signals = StopSignal() if self.options.handle_signals else None
        self._source: Source | None = None
        self._dataset: Any = None
        self._loader_options = LoaderOptions()
        self._ledger: Ledger | None = None
        self._resumed: dict[str, Any] | None = None  # until the dataset is known
        self._loop_epoch = 0
        # The step under way.
        self._phase = Phase.BETWEEN
        self._share: Share | None = None
        self._group = Group()
        self._synchronises = True
        self._scales_itself = False
        self._exchange: Callable[[], torch.Tensor] | None = None
        self._items = 0.0
        self._loss: torch.Tensor | None = None
        self._finished = 0.0
        self._waited = 0.0  # of it, in exchanges inside forward and backward
        self._waits = 0  # so many of those
        self._known_sizes = KnownSizes(self.device)
        self._failed_batch = 0  # memory did not hold it
        self._bad_sample: SampleError | None = None  # of this worker's share
        self._attempts = 0  # at the step under way that failed though nobody was lost
        self._record: StepRecord | None = None
        self._stop_wanted = self._stopping = False
        self._stop_signal = 0
        self._world.barrier()
        self._world.take_waits()
        self._began = time.perf_counter()

    # How it starts.

    def _choose_device(self, place: environment.Place | None) -> torch.device:
        device = self.options.device
        if device is None:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            device = f"cuda:{(place.local_rank if place else 0) % count}" if count else "cpu"
        self.options.device = torch.device(device)
        self.options.kind = self.options.kind or self.options.device.type
        return self.options.device

    def _join(self, place: environment.Place | None) -> bool:
        if dist.is_initialized() or place is None or (place.size == 1 and not place.address):
            return False
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        backend = self.options.backend or environment.default_backend(self.device)
        environment.join_group(place, backend, timedelta(seconds=self.options.timeout))
        return True

    def _agree(self) -> list[Worker]:
        mine = {"shared": self.options.shared(), "worker": state.describe(self.options.describe(self._world.rank))}
        everybody = self._world.gather_objects(mine)
        for rank, theirs in enumerate(everybody):
            for name, value in theirs["shared"].items():
                expected = everybody[0]["shared"].get(name)
                if value != expected:
                    raise ValueError(f"{name} is {value} on rank {rank}; permitted: what rank 0 has, {expected}")
        return [Worker(**theirs["worker"]) for theirs in everybody]

    def _new_controller(self, workers: list[Worker]) -> Controller:
        options = self.options
        return Controller(
            workers,
            options.global_batch,
            policy=options.policy,
            rate=options.rate,
            reference_batch=options.reference_batch,
            warmup_steps=options.warmup_steps,
        )

    # What it is asked for.

    def prepare(self, *things: Any) -> Any:
        """Models, optimizers, schedulers and scalers, in any order; returns them in that order.

        Models come back wrapped with DDP, unless they are DDP or FSDP already or the job is alone, with rank 0's
        parameters, their BatchNorm layers exact over the global batch. Everything else comes back as it is. All of it
        is part of save() and restore().
        """
        prepared = []
        for thing in things:
            if isinstance(thing, nn.Module):
                prepared.append(self._models.add(thing))
                continue
            if isinstance(thing, torch.optim.Optimizer):
                self._optimizers.append(thing)
            elif hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
                self._others.append(thing)
            else:
                raise ValueError(
                    f"prepare() got a {type(thing).__name__}; permitted: modules, optimizers, and what has a "
                    "state_dict; give a dataset to loader()"
                )
            prepared.append(thing)
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def epochs(self, count: int) -> Iterator[int]:
        """Epoch numbers from the present one (0, or where a restored job is) to count - 1; fewer when stopping."""
        while not self.stopping and self.epoch < count:
            yield self.epoch
            self.finish_step()

    def loader(self, dataset: Any, **options: Any) -> Loader:
        """What is left of the epoch, this worker's share of a global batch at a time: an iterable with a length.

        `dataset` is map-style, or iterable with the same order on all workers. Options: num_workers, collate_fn,
        pin_memory, prefetch_steps (2), worker_init_fn, multiprocessing_context. A job trains on one dataset.
        """
        self.options.check_dataset(is_stream(dataset))
        if self._source is None:
            self._loader_options = LoaderOptions(**options)
            given = self.options
            self._source = make_source(dataset, self._loader_options, given.global_batch, given.seed, given.last_batch)
            self._dataset = dataset
            self._ledger = self._source.new_ledger()
            resumed = self._resumed is not None
            if self._resumed is not None:
                state.follow(self, self._resumed)
            self._open_trace(go_on=resumed)
        elif dataset is not self._dataset:
            raise Error("loader() with a second dataset; a job trains on one")
        return Loader(self)

    def _open_trace(self, go_on: bool) -> None:
        assert self._source is not None
        size = self._source.samples_per_epoch
        self._trace.open(self.is_first, size, self.step, self._controller.workers, go_on)

    def backward(
        self,
        loss: torch.Tensor | Callable[[], torch.Tensor],
        *,
        count: int | float | torch.Tensor | None = None,
        reduction: str = "mean",
        scaler: Any = None,
        **arguments: Any,
    ) -> bool:
        """Gradients are those of the global batch afterwards.

        `loss` is the mean over this worker's samples, or a function that computes it: then memory that runs out while
        it does so is dealt with, too. `count` says how many items, such as tokens, the loss is the mean over, if not
        samples: the gradient is that of the mean over all workers' items. With reduction="sum" it is the sum over the
        samples, here and over all workers. A GradScaler may be given, or have scaled the loss already. Further
        arguments go to Tensor.backward. Returns False if the step did not happen: no gradient is left then.
        """
        if self._phase is not Phase.COMPUTING:
            raise Error("backward() without a batch of the loader")
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction is {reduction!r}; permitted: mean, sum")
        try:
            value = loss() if callable(loss) else loss
            items = self._my_count if count is None else float(count)
            self._compute(value, items, count is not None, reduction, scaler, arguments)
        except Exception as error:
            self.give_up_step(error)
            return False
        return True

    def _compute(
        self, loss: torch.Tensor, items: float, counted: bool, reduction: str, scaler: Any, arguments: dict[str, Any]
    ) -> None:
        self._rethrow_failure()
        assert self._share is not None
        if counted:
            self._group.counts = True
            self._group.counted += items if self._my_count else 0.0
        scaled = loss * self._loss_weight(items, reduction)
        if scaler is not None:
            scaled = scaler.scale(scaled)
        scaled.backward(**arguments)
        self._stop_clock()
        self._rethrow_failure()
        if self._group.counts and self._synchronises:
            self._divide_by_counts()
        self._finished = self._now()
        self._loss = loss.detach() if reduction == "mean" else loss.detach() / max(self._my_count, 1)
        self._items = items
        if self.device.type == "cpu":
            self._send()  # on a GPU, reading times and loss now would wait for it
        self._phase = Phase.COMPUTED

    def _rethrow_failure(self) -> None:
        if self._world.failure is not None:
            raise self._world.failure

    def _loss_weight(self, items: float, reduction: str) -> float:
        """Before an average over K workers: b_k K / B for a mean over b_k samples, K for a sum over them."""
        assert self._share is not None
        if self._share.stand_in:
            return 0.0
        if reduction == "sum":
            return float(self._world.size)
        if self.options.weighting == "mean":
            return 1.0
        return items * self._world.size / (self._group.samples or sum(self._share.counts))

    def _divide_by_counts(self) -> None:
        """Weights were items over samples; only now is it known how many items there are in all. A factor that is the
        same on all workers may come after backward."""
        assert self._share is not None
        items = self._world.sum([self._group.counted])[0]
        samples = self._group.samples or sum(self._share.counts)
        gradients = [parameter.grad for parameter in self._models.parameters() if parameter.grad is not None]
        if items > 0 and gradients:
            torch._foreach_mul_(gradients, samples / items)

    @property
    def weight(self) -> float:
        """What backward() multiplies with. Whoever reads it scales the losses of this step himself and calls their
        backward(): for several losses, or several models."""
        if self._phase is Phase.BETWEEN:
            raise Error("weight without a batch of the loader")
        self._scales_itself = True
        return self._loss_weight(self._my_count, "mean")

    @contextlib.contextmanager
    def accumulate(self, steps: int) -> Iterator[bool]:
        """Around forward and backward of a batch: `steps` batches go into one step of the optimizer.

            with job.accumulate(4) as last:
                job.backward(loss_fn(model(x), y))
            if last:
                optimizer.step()
                optimizer.zero_grad()

        The gradient is that of the mean over all their samples. The last group of an epoch may be smaller.
        """
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"accumulate() got {steps!r}; permitted: a whole number, 1 or more")
        if self._phase is not Phase.COMPUTING or self._share is None or self._source is None:
            raise Error("accumulate() without a batch of the loader")
        left = self._source.left()
        if not self._group.begun:
            self._group.begin(steps, self.options.global_batch, self._source)
            if steps > 1 and (self._world.elastic or self.options.on_bad_sample == "skip"):
                self._group.beginning = state.place_of(self)
        self._synchronises = self._group.is_last(self._share.size, left)
        with contextlib.nullcontext() if self._synchronises else self._models.unsynchronised():
            yield self._synchronises

    @property
    def updating(self) -> bool:
        """Whether the gradients are complete, so that the optimizer's step is due: always, unless in accumulate()."""
        return self._synchronises

    def give_up_step(self, error: BaseException) -> None:
        """In place of backward(), by loops that compute the loss themselves and caught `error`: if memory ran out or a
        worker was lost, the step will be dealt again, smaller for whom it was too much. Anything else is raised."""
        if is_out_of_memory(error) and self._phase is Phase.COMPUTING and self._world.size > 1:
            self._failed_batch = self._my_batch
            if self._failed_batch <= 1 or not self._world.elastic:
                raise error  # there is nothing smaller, or the others cannot be called back
        elif self._world.failure is None and not is_peer_failure(error):
            raise error
        recover(self, self._world.failure or error)

    # Steps.

    def _begin_step(self) -> Any:
        """The next batch in a tuple; None if the loop is over."""
        self.finish_step()
        assert self._source is not None
        while not self._stopping and self._source.epoch == self._loop_epoch:
            if not self._models.models:
                raise Error("a batch of the loader before prepare()")
            if self._world.elastic and not self._group.begun:
                self._models.remember_buffers()
            try:
                self._models.begin_step()
            except RuntimeError as error:
                self.give_up_step(error)
                continue
            if self.options.reseed:
                self._reseed()
            self._rate.apply(self._optimizers, self._decision.learning_rate_factor)
            self._stopwatch.start()
            try:
                share = self._source.take(self._decision.batch_sizes, self._world.rank)
            except SampleError as error:
                give_up_sample(self, error)
                continue
            if share is None:
                break
            self._share = share
            self._statistics.counts = not share.stand_in
            if self._step_file is not None:
                self._step_file.publish(self.step)
            self._world.take_waits()
            self._scales_itself = False
            self._synchronises = True
            self._phase = Phase.COMPUTING
            return (self._hand_out(share.batch),)
        return None

    def _reseed(self) -> None:
        seed = mix_key([self.options.seed, self.step, self._world.rank])
        torch.random.default_generator.manual_seed(seed)  # torch.manual_seed would look for GPUs at every step
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _hand_out(self, batch: Any) -> Any:
        if self._loader_options.pin_memory and torch.cuda.is_available():
            batch = collate.pin(batch)
        if self.options.dynamic and "torch._dynamo" in sys.modules:
            for tensor in collate.tensors_of(batch):
                if tensor.dim() > 0 and tensor.shape[0] > 1:
                    torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return batch

    def _stop_clock(self) -> None:
        """Backward is over. While this worker waited inside it, its GPU had nothing to do either."""
        self._stopwatch.stop()
        self._waited, self._waits = self._world.take_waits()

    def _measure(self, count: float) -> Report:
        assert self._share is not None
        waited = self._waited
        seconds = max(self._stopwatch.seconds() - waited, 0.0)
        signal = self._signals.received() if self._signals is not None else 0
        return Report(
            batch=self._my_batch,
            start=self._stopwatch.started - self._began,
            seconds=seconds,
            warm=float(self._known_sizes.add(self._my_batch)),
            waited=waited,
            meetings=self._waits + 1,
            cpu=self._stopwatch.cpu_share(seconds + waited),
            memory=self._memory.share(),
            count=count if self._my_count else 0.0,
            decision=digest(self._decision, self._share.epoch, self._share.position),
            stop=1 + signal if signal else float(self._stop_wanted),
        )

    def _send(self) -> None:
        report = self._measure(self._items)
        report.loss = float(self._loss) if self._loss is not None else math.nan
        self._exchange = self._world.start_gather(report.to_tensor())

    def finish_step(self) -> None:
        """Waits for the reports of a step whose optimizer step is done; the loader, save() and close() do it by
        themselves."""
        if self._phase is Phase.BETWEEN:
            return
        if self._phase is Phase.COMPUTING:
            if not self._scales_itself:
                raise Error("the loader went on to the next step before backward()")
            self._finished = self._now()
            self._stop_clock()
            self._items, self._loss = 0.0, None
            self._phase = Phase.COMPUTED
        self._rate.restore()
        try:
            self._rethrow_failure()
            if self._exchange is None:
                self._send()
            assert self._exchange is not None
            rows = self._exchange()
        except Exception as error:
            if not is_peer_failure(error):
                raise
            recover(self, error)
            return
        self._exchange = None
        self._complete_step(Report.from_rows(rows))

    def _complete_step(self, reports: list[Report]) -> None:
        assert self._share is not None
        self._phase = Phase.BETWEEN  # whatever happens below, this step is not finished twice
        self._attempts = 0
        workers = self._controller.workers
        check_agreement(reports, self.step)
        place = self._share.epoch, self._share.position
        self._record = make_record(reports, workers, self._decision, place, self._finished, self._now())
        self._note_samples()
        stop = int(max(report.stop for report in reports))
        self._stopping = self._stopping or stop > 0
        self._stop_signal = max(self._stop_signal, stop - 1)
        self._controller.observe(
            self.step,
            [worker.id for worker in workers],
            [int(report.batch) for report in reports],
            [report.seconds if report.warm else math.nan for report in reports],
            [report.cpu for report in reports],
            [report.memory for report in reports],
            int(max(report.meetings for report in reports)),
        )
        self._decision = self._controller.decision
        if self._ceilings.raise_due(self.step, self.options.global_batch):
            self._change_workers(self._with_ceilings())
        self._trace.step(self._record)
        if self.options.numbers == "stop":
            refuse_numbers(reports, workers, self.step - 1)

    def _note_samples(self) -> None:
        assert self._share is not None and self._ledger is not None and self._source is not None
        if self._share.position == 0:
            self._ledger = self._source.new_ledger()
        for (first, last), worker in zip(self._share.slices, self._controller.workers, strict=True):
            self._ledger.stage(first, last, worker.id)
        self._source.advance()
        if self._synchronises:
            self._ledger.commit()
            self._group.end()
        else:
            self._group.done += 1

    def _change_workers(self, workers: list[Worker]) -> None:
        self._controller.change_workers(workers)
        self._decision = self._controller.decision

    def _with_ceilings(self) -> list[Worker]:
        limited = []
        for worker in self._members:
            described = state.describe(worker)
            described["max_batch"] = self._ceilings.limit(worker.id, max(worker.min_batch, 1), worker.max_batch)
            limited.append(Worker(**described))
        return limited

    def _tell(self, event: str, worker: int, words: str) -> None:
        self._trace.event(EventRecord(self.step, self._now(), event, worker, words))

    def _now(self) -> float:
        return time.perf_counter() - self._began

    @property
    def _my_count(self) -> int:
        return self._share.counts[self._world.rank] if self._share is not None else 0

    @property
    def _my_batch(self) -> int:
        assert self._share is not None
        first, last = self._share.slices[self._world.rank]
        return last - first

    # Together.

    def sum(self, values: list[float]) -> list[float]:
        """Element-wise sums over the workers, for one's own evaluation. Collective."""
        return self._world.sum([float(value) for value in values])

    def barrier(self) -> None:
        self._world.barrier()

    def evaluation(self, loss: float = math.nan, accuracy: float = math.nan) -> None:
        """Notes a test result in the run log and TensorBoard."""
        self.finish_step()
        self._trace.evaluation(self.step, self._now(), loss, accuracy)

    def stop(self) -> None:
        """All workers end their loops after the step under way, once the word has gone round."""
        self._stop_wanted = True

    def state_dict(self) -> dict[str, Any]:
        """The job without its models: controller, sampler, ledger. Equal on all workers; plain numbers and texts."""
        self.finish_step()
        return state.state_of(self)

    def _more_state(self) -> dict[str, Any]:
        """What a kind of job adds to it."""
        return {}

    def _take_more_state(self, saved: dict[str, Any]) -> None:
        """Of _more_state(), if the saved job was of that kind."""

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """On another number of workers as well. Before the loop. Raises ValueError naming what differs."""
        state.restore(self, saved)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Job, models, optimizers and whatever else was prepared, in one file that appears whole. Collective."""
        self.finish_step()
        state.save(self, path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """After prepare(), before the loop. Collective; only the first worker needs to see the file."""
        state.load(self, path)

    def close(self) -> None:
        """Finishes the step under way and lets go of everything. Collective."""
        if self._phase is Phase.COMPUTED:
            self.finish_step()
        self._phase = Phase.BETWEEN
        self._stopwatch.close()
        self._memory.close()
        if self._source is not None:
            self._source.close()
        self._trace.close()
        if self._signals is not None:
            self._signals.close()
        if self._made_group and dist.is_initialized():
            with contextlib.suppress(Exception):  # some may be gone already
                dist.destroy_process_group()
            self._made_group = False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif self._source is not None:
            self._source.close()
