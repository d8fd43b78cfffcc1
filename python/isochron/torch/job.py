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
import math
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from isochron._core import Ledger, StepRecord, UpdateRecord
from isochron.errors import Error, PeerError
from isochron.log_files import refusal, trouble_of_writing
from isochron.summary import Summary, summarize
from isochron.torch import cluster, collectives, environment, micro_batches, state
from isochron.torch.datasets import take_over
from isochron.torch.dropout import bind_dropouts
from isochron.torch.loader import Loader
from isochron.torch.loss_weight import LossWeight
from isochron.torch.micro_batches import Division, obstacle
from isochron.torch.options import JobOptions
from isochron.torch.parallel import is_average
from isochron.torch.source import LoaderOptions, is_stream
from isochron.torch.steps import Steps
from isochron.torch.world import World

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from isochron.torch.options import TorchKeywords
    from isochron.torch.source import LoaderKeywords


class Job(Steps):
    """Takes the options of `JobOptions` as keywords. Collective: all workers make one, with the same shared options.

    Joins the process group that is there, or makes one from the variables of torchrun, Slurm or Open MPI, or is alone.
    Raises ValueError, on all workers, if they do not agree on what they share or their bounds cannot hold B. With
    sync="asp" or "ssp" it is an AsyncJob (async_job.py), with sync="local" a LocalJob (local_job.py).
    """

    def __new__(cls, global_batch: int, **options: Unpack[TorchKeywords]) -> Job:
        if cls is Job and options.get("sync") in ("asp", "ssp"):
            from isochron.torch.async_job import AsyncJob

            return super().__new__(AsyncJob)
        if cls is Job and options.get("sync") == "local":
            from isochron.torch.local_job import LocalJob

            return super().__new__(LocalJob)
        return super().__new__(cls)

    def __init__(self, global_batch: int, **options: Unpack[TorchKeywords]) -> None:
        self.options = JobOptions(global_batch=global_batch, **options)
        cluster.take_defaults(self.options)
        self.options.validate()
        place = environment.find_place()
        self.device = self._choose_device(place)
        self._made_group = self._join(place)
        world = World(self.options.timeout, self.options.elastic, self.device)
        self._check_log(world)
        self.options.check_skipping(world.size, world.elastic)
        super().__init__(self.options, self.device, world)

    # Where it is.

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch of the dataset has that the loop is in."""
        if self._source is None:
            raise Error("steps_per_epoch before loader()")
        return self._source.steps_per_epoch

    @property
    def batch_sizes(self) -> list[int]:
        """What every worker takes of the step under way, or of the coming one between two steps, by rank."""
        per_sample = self._replica.units_per_sample
        return [round(size / per_sample) for size in self.decision.batch_sizes]

    @property
    def share_counts(self) -> list[int]:
        """Samples of the step under way, by rank; empty between two steps, and with sync "asp" or "ssp"."""
        return list(self._share.counts) if self._share is not None else []

    @property
    def last_step(self) -> StepRecord | None:
        """The last finished one; not with sync "asp" or "ssp"."""
        return self._record

    @property
    def last_update(self) -> UpdateRecord | None:
        """With sync "asp" or "ssp": this worker's last one."""
        return self._update

    def summary(self) -> Summary:
        """What the job has achieved until now: speed, waiting, and what its shares gain; print() makes it a
        sentence."""
        return summarize(self._meter)

    @property
    def ledger(self) -> Ledger:
        """Which positions of the epoch were used."""
        if self._source is None:
            raise Error("ledger before loader()")
        return self._replica.ledger

    # How it starts.

    def _choose_device(self, place: environment.Place | None) -> torch.device:
        device = self.options.device
        if device is None:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            device = f"cuda:{(place.local_rank if place else 0) % count}" if count else "cpu"
        self.options.device = torch.device(device)
        if self.options.device.type == "cuda" and not torch.cuda.is_available():
            why = "this machine has no GPU that PyTorch can use"
            raise ValueError(f"device is {str(device)!r}; permitted: cpu ({why})")
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

    def _check_log(self, world: World) -> None:
        path = self.options.log
        trouble = trouble_of_writing(path) if path is not None and world.rank == 0 else ""
        if trouble := world.gather_words(trouble)[0]:
            raise refusal(path, trouble)

    def __repr__(self) -> str:
        where = f"step {self.step}, epoch {self.epoch}, batches {self.batch_sizes}"
        return f"<Job: worker {self.rank} of {self.size}, {where}, policy {self.options.policy}>"

    # What it is asked for.

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The model itself, whether prepare() has put DDP around it or not, and whether it is compiled."""
        wrapped = isinstance(model, DistributedDataParallel)
        inner: nn.Module = model.module if wrapped else getattr(model, "_orig_mod", model)  # type: ignore[assignment]
        return model if inner is model else self.unwrap(inner)

    def prepare(self, *things: Any) -> Any:
        """Models, optimizers, schedulers and scalers, in any order; returns them in that order.

        Models come back wrapped with DDP, unless they are DDP or FSDP already or the job is alone, with rank 0's
        parameters, their BatchNorm layers exact over the global batch. Averages of a model are not wrapped: an
        AveragedModel, or a copy whose parameters no optimizer has, in eval() or equal to another of the modules.
        Everything else comes back as it is. All of it is part of save() and restore().
        """
        prepared = []
        optimizers = [*self._optimizers, *(one for one in things if isinstance(one, torch.optim.Optimizer))]
        modules = [*self._models.plain(), *(one for one in things if isinstance(one, nn.Module))]
        self._models.check_kept(optimizers)
        for thing in things:
            if isinstance(thing, nn.Module):
                self._check_division(thing)
                self._dropouts = bind_dropouts(self, thing, self._dropouts)
                keep = self._models.keep if is_average(thing, optimizers, modules) else self._models.add
                prepared.append(keep(thing))
                continue
            if isinstance(thing, torch.optim.Optimizer):
                self._optimizers.append(thing)
                self._watch(thing)
            elif hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
                self._prepared.others.append(thing)
                self._has_scaler = self._has_scaler or hasattr(thing, "get_scale")
            else:
                raise ValueError(
                    f"prepare() got a {type(thing).__name__}; permitted: modules, optimizers, and what has a "
                    "state_dict; give a dataset to loader()"
                )
            prepared.append(thing)
        self._prepared.catch_up()
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def _check_division(self, model: nn.Module) -> None:
        if self._divides and (reason := obstacle(model)):
            raise ValueError(f"micro_batch is set for {reason}; permitted: 0, with max_batch as the memory ceiling")

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        if self.options.on_nonfinite != "ignore":
            self._hooks.append(optimizer.register_step_pre_hook(self._judge))
        if self.options.sync == "bsp":
            self._hooks.append(optimizer.register_step_pre_hook(self._begin_optimizer_step))
            self._hooks.append(optimizer.register_step_post_hook(self._end_optimizer_step))
        if isinstance(optimizer, torch.optim.LBFGS):
            self._hooks.append(optimizer.register_step_pre_hook(self._share_loss))

    def _share_loss(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What it decides by the loss, such as how often it computes, is then the same on all workers."""
        own = keywords["closure"] if "closure" in keywords else arguments[1]

        def closure() -> Any:
            loss = own()
            if self._share is None:
                return loss  # the step did not happen
            mine = float(loss) * self.share_weight / self._world.size
            return torch.as_tensor(loss).new_tensor(self._world.sum([mine])[0])

        return (optimizer,), {"closure": closure}

    def epochs(self, count: int) -> Iterator[int]:
        """Epoch numbers from the present one (0, or where a restored job is) to count - 1; fewer when stopping."""
        while not self.stopping and self.epoch < count:
            yield self.epoch
            self.finish_step()

    def loader(self, dataset: Any, *, name: str | None = None, **options: Unpack[LoaderKeywords]) -> Loader:
        """What is left of the epoch, this worker's share of a global batch at a time: an iterable with a length.

        `dataset` is map-style, or iterable with the same order on all workers, or Shards, or a DataLoader whose
        dataset, collate_fn, processes, pinning and sampler are taken over. Options: num_workers, collate_fn,
        pin_memory, to_device, sampler, max_steps, prefetch_steps (2), worker_init_fn, multiprocessing_context. With
        `lengths` of the samples every step is dealt by `cost`, for a `collate_fn` whose batches are "padded" or
        "packed" (`collate`), and with `count="lengths"` losses are means over tokens: see isochron/lengths.py. Called
        again with the same data it is the same loader, with the new options if there are any. Other data has an epoch,
        a ledger and a log of its own; so has the same data under another `name`.
        """
        given: dict[str, Any] = {**options}
        if isinstance(dataset, DataLoader):
            dataset, taken_over = take_over(dataset, self.options.last_batch == "drop", warns=self.rank == 0)
            given = {**taken_over, **given}
        self.options.check_dataset(is_stream(dataset))
        told = LoaderOptions.of(given)
        data = next((one for one in self._datasets if one.is_of(dataset, name)), None)
        if data is None:
            data = self._open_data(dataset, name, told)
        elif data.dataset is not dataset or (given and told != data.options):
            self._replace_data(data, dataset, told)
        if not self._awaits_gradients:
            self._select(data)
        return Loader(self, data)

    def end_epoch(self) -> None:
        """The rest of the epoch is not wanted: the next loop begins with the next one. Collective; the log says so."""
        if self._group.begun:
            raise Error("end_epoch() between the batches of accumulate(); permitted: behind the last of them")
        if self._awaits_backward and not self._stopwatch.saw_gradients:
            self._abandon()  # the batch at which the loop was left
            self._close_step()
        self.finish_step()
        if self._source is not None and self._replica.position > 0:
            self._end_epoch()

    def backward(
        self,
        loss: torch.Tensor | Callable[..., torch.Tensor],
        *batch: Any,
        count: int | float | str | torch.Tensor | Callable[..., Any] | None = None,
        reduction: str = "mean",
        scaler: Any = None,
        **arguments: Any,
    ) -> bool:
        """Gradients are those of the global batch afterwards.

        `loss` is the mean over this worker's samples, or a function that computes it: then memory that runs out while
        it does so is dealt with, too. With a `batch`, as in backward(loss_of, x, y), it is a function of the batch or a
        part of it, which is called for each of the micro-batches of micro_batch= samples, or of as many as memory has
        turned out to hold. `count` says how many items, such as tokens, the loss is the mean over, if not samples: the
        gradient is that of the mean over all workers' items; with a `batch` it is a function of it, and "lengths" are
        the loader's, added up. With reduction="sum" the loss is the sum over the samples, here and over all workers. A
        GradScaler may be given, or have scaled the loss already. Further arguments go to Tensor.backward. May be called
        several times for a batch: gradients add up, as Tensor.backward's do. Returns False if the step did not happen:
        no gradient is left then.
        """
        if self._statistics.given_up:
            return False  # by an earlier call for the same batch
        if not self._has_batch:
            raise Error("backward() without a batch of the loader")
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction is {reduction!r}; permitted: mean, sum")
        if count is None and not batch and self._share is not None and self._share.all_items is not None:
            count = "lengths"
        if isinstance(count, str):
            count = self._count_named(count, bool(batch))
        try:
            if self._computed:
                self._compute_again(count is not None)
            self._compute(self._divide(loss, batch, count), reduction, scaler, arguments)
        except Exception as error:
            self.give_up_step(error)
            return False
        return True

    def _count_named(self, name: str, divided: bool) -> float:
        assert self._share is not None
        if name != "lengths" or divided or self._share.items is None:
            permitted = "a number, or 'lengths' of a loader with lengths= and without a batch given to backward()"
            raise ValueError(f"count is {name!r}; permitted: {permitted}")
        return self._share.items

    def _divide(self, loss: Any, batch: tuple[Any, ...], count: Any) -> Division:
        self._divisible = bool(batch) and not any(map(obstacle, self._models.models))
        if not batch:
            self._require_undivided("backward(loss)")
            return micro_batches.whole(loss, count)
        return micro_batches.divide(loss, batch, self._replica.chunk_size, count)

    def _require_undivided(self, what: str) -> None:
        most = self._replica.chunk_size
        if 0 < most < self._my_count:
            raise Error(
                f"{what} with a batch of {self._my_count} samples and micro_batch {most}; permitted: "
                "backward(loss_of, *batch), which calls loss_of(*part) for every micro-batch"
            )

    def _compute(self, batch: Division, reduction: str, scaler: Any, arguments: dict[str, Any]) -> None:
        items = self._my_count if batch.items is None else batch.items
        if batch.items is not None:
            self._group.counts = True
            self._group.counted += items if self._my_count else 0.0
        weight = self._loss_weight(items, reduction)
        losses = []
        for part in batch.parts:
            last = part is batch.parts[-1]
            share = part.share if reduction == "mean" else 1.0
            self._mark_dynamic(part.inputs)
            self._first_row = part.first
            with contextlib.nullcontext() if last else self._own_gradients():
                losses.append(self._pass(batch.loss_of(*part.inputs), weight * share, scaler, arguments) * share)
        self._first_row = 0
        self._stop_clock()
        if self._synchronises:
            self._world.await_gradients()
        self._rethrow_failure()
        if self._group.counts and self._synchronises:
            self._divide_by_counts()
        loss = sum(losses[1:], losses[0])
        mean = loss if reduction == "mean" else loss / max(self._my_count, 1)
        self._end_computing(mean if self._loss is None else mean + self._loss, items)
        if self.device.type == "cpu" and not self._several:
            self._send()  # on a GPU, reading times and loss now would wait for it

    @contextlib.contextmanager
    def _own_gradients(self) -> Iterator[None]:
        """Around the micro-batches before the last one."""
        unsynchronised = self._models.unsynchronised() if self._synchronises else contextlib.nullcontext()
        with unsynchronised, self._models.kept_whole(), self._stopwatch.without_reduction():
            yield

    def _pass(self, loss: torch.Tensor, weight: float, scaler: Any, arguments: dict[str, Any]) -> torch.Tensor:
        """A backward pass of the loss, which it returns without its graph."""
        self._rethrow_failure()
        if scaler is None and "gradient" not in arguments and loss.device.type == "cpu" and loss.dim() == 0:
            # The gradient of weight times the loss, without an operation for it; NaN if the loss is not finite, so that
            # all gradients are.
            watched = self.options.on_nonfinite != "ignore"
            factor = weight if not watched or math.isfinite(loss.item()) else math.nan
            loss.backward(torch.full((), factor, dtype=loss.dtype), **arguments)
            return loss.detach()
        scaled = loss * weight
        if self.options.on_nonfinite != "ignore":
            scaled = scaled * (1.0 + 0.0 * loss.detach())  # a loss that is not finite makes all gradients so
        if scaler is not None:
            scaled = scaler.scale(scaled)
            self._has_scaler = True
        scaled.backward(**arguments)
        return loss.detach()

    def _compute_again(self, counted: bool) -> None:
        """A further backward pass for a batch whose report is made, and perhaps on its way: it is made anew. From now
        on reports wait until the loop goes on to the next batch."""
        share = self._share
        if share is not None and share.all_items is not None:
            raise Error(
                "a second backward() for a batch whose loader has count='lengths'; permitted: one backward() of the "
                "sum of the losses, or (loss * job.weight).backward() for each of them"
            )
        if counted or self._group.counts:
            raise ValueError("count= in one of several backward() for a batch; permitted: one backward() of their sum")
        self._several = True
        exchange, self._exchange, self._reports = self._exchange, None, None
        self._computed = False
        if exchange is not None:
            exchange()
        if self._replica.phase == "computed":
            self._replan()

    def _loss_weight(self, items: float, reduction: str) -> float:
        """Before an average over K workers: b_k K / B for a mean over b_k samples, K for a sum over them."""
        assert self._share is not None
        if self._share.stand_in:
            return 0.0
        if reduction == "sum":
            return float(self._world.size)
        if self.options.weighting == "mean":
            return 1.0
        return items * self._world.size / self._samples

    @property
    def _samples(self) -> int:
        """All that the coming step of the optimizer is for."""
        assert self._share is not None
        return self._group.samples or sum(self._share.counts)

    def _divide_by_counts(self) -> None:
        """Weights were items over samples; only now is it known how many items there are in all. A factor that is the
        same on all workers may come after backward."""
        items = self._world.sum([self._group.counted])[0]
        gradients = [parameter.grad for parameter in self._models.parameters() if parameter.grad is not None]
        if items > 0 and gradients:
            torch._foreach_mul_(gradients, self._samples / items)

    @property
    def weight(self) -> float:
        """What the mean loss of this worker's samples is multiplied with, so that the average over workers is that of
        the global batch: (loss * job.weight).backward() in place of job.backward(loss), for several losses a step or
        loops that another library writes. A loss that is multiplied with it is logged."""
        if self._share is None:
            raise Error("weight without a batch of the loader")
        self._require_undivided("weight")
        self._scales_itself = True
        return LossWeight(self.share_weight, self._add_loss)

    @property
    def share_weight(self) -> float:
        """b_k K / B, or by lengths where the loader's count= says so: what a mean over this worker's samples is
        multiplied with before it is averaged over workers, for metrics. Unlike `weight` it says nothing about how the
        loop computes its gradients."""
        if self._share is None:
            raise Error("share_weight without a batch of the loader")
        everybody = self._share.all_items
        if everybody is None or self._share.stand_in or self.options.weighting == "mean":
            return self._loss_weight(self._my_count, "mean")
        if self._group.steps > 1:
            raise Error(
                "weight in accumulate() with count='lengths' of the loader: what the later batches count is not known "
                "yet; permitted: job.backward(loss), which divides when it is"
            )
        return self._weighed_items * self._world.size / everybody

    def log_loss(self, loss: torch.Tensor | float) -> None:
        """What the log, TensorBoard and last_step say of this step's loss: a mean over this worker's samples, or what
        count= says, in place of what backward() and `weight` have seen."""
        if self._share is None:
            raise Error("log_loss() without a batch of the loader")
        self._said_loss = torch.as_tensor(loss).detach()

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
        if self._share is None or self._computed or self._source is None:
            raise Error("accumulate() without a batch of the loader")
        left = self._source.left(steps * self.options.global_batch)
        if not self._group.begun:
            self._group.begin(steps, self.options.global_batch, self._source)
            if steps > 1:
                self._remember_beginning()
        self._synchronises = self._group.is_last(self._share.plan.step_size, left)
        with contextlib.nullcontext() if self._synchronises else self._models.unsynchronised():
            yield self._synchronises

    def _remember_beginning(self) -> None:
        """The replica's state is to be had between steps only, so this one is planned anew, as it was."""
        self._replica.abandon()
        self._group.beginning = self._replica.state()
        assert self._share is not None and self._source is not None
        self._source.plan_again(self._share.plan)

    @property
    def updating(self) -> bool:
        """Whether the gradients are complete, so that the optimizer's step is due: always, unless in accumulate()."""
        return self._synchronises

    # Together.

    def sum(self, values: list[float]) -> list[float]:
        """Element-wise sums over the workers, for one's own evaluation. Collective."""
        return self._world.sum([float(value) for value in values])

    def barrier(self) -> None:
        """Waits until all workers are here, at most for the job's time-out. Collective."""
        self._world.barrier()

    def note_evaluation(self, loss: float = math.nan, accuracy: float = math.nan) -> None:
        """A test result goes into the run log and TensorBoard."""
        self.finish_step()
        self._ensure_trace()
        self._trace.evaluation(self._line, self._now(), loss, accuracy)

    evaluation = note_evaluation  # its name before

    def stop(self) -> None:
        """All workers end their loops after the step under way, once the word has gone round."""
        self._stop_wanted = True

    def state_dict(self) -> dict[str, Any]:
        """The job without its models: controller, sampler, ledger. Equal on all workers; plain texts and numbers."""
        self.finish_step()
        return self._save_datasets()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """On another number of workers as well; before or after prepare() and loader(). Raises ValueError naming what
        differs."""
        if self._datasets:
            self._select(self._datasets[0])  # whose place the state has
        self._replica.restore(state.for_replica(saved, self._replica.state()))
        self._load_datasets(saved)
        self._group.end()
        self._resumed = True
        self._loop_epoch = self.epoch
        self._trace.resume(self.step)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Job, models, optimizers and whatever else was prepared, in one file that appears whole. Collective. If a
        worker is lost meanwhile, those who are left come together first; without the first worker another one
        writes."""
        job, written = self.state_dict(), self._prepared.written
        self._recovery.saves += 1
        if self._recovery.saves > self._recovery.settled_saves:
            try:
                return self._prepared.save(path, job)
            except PeerError as error:
                if not self._recovery.is_possible:
                    raise
                self._models.remember()  # the step before is done: nothing of it is undone
                self._recover(error)
                job = self.state_dict()
        # When somebody was lost, others may have known already that the file is there, and have gone on, or were still
        # to come here: so there is no exchange about it any more, nor about what the file would have of all.
        if self._world.rank == 0 and self._prepared.written == written:
            for average in self._models.averages:
                average.forget()
            self._prepared.write(path, job)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Before or after prepare() and loader(): what was saved waits until prepare() has been given as many models,
        optimizers and others. Collective; only the first worker needs to see the file."""
        self.load_state_dict(self._prepared.load(path))

    def close(self) -> None:
        """Finishes the step under way and lets go of everything. Collective."""
        if self._computed or (self._scales_itself and self._stopwatch.saw_gradients):
            self.finish_step()
        self._abandon()
        self._close_step()
        for hook in self._hooks:
            hook.remove()
        self._stopwatch.close()
        collectives.leave(self._world.waits)
        self._close_datasets()
        if self._signals is not None:
            self._signals.close()
        self._world.close()
        if self._made_group and dist.is_initialized():
            with contextlib.suppress(Exception):  # some may be gone already
                dist.destroy_process_group()
            self._made_group = False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._close_sources()
