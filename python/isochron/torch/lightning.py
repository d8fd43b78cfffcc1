"""Lightning: give the trainer the job's loader and this callback.

    job = isochron.torch.Job(global_batch=256)
    trainer = lightning.Trainer(strategy="ddp", callbacks=[IsochronCallback(job)], use_distributed_sampler=False)
    trainer.fit(module, job.loader(dataset))

Start it with torchrun or another launcher, so that the job finds its place before the trainer does.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from lightning.pytorch import Callback

from isochron.errors import Error
from isochron.torch.job import Job
from isochron.torch.streams import StreamSource


NOTHING = {"sum": 0.0, "min": float("inf"), "max": float("-inf")}  # what counts for nothing in such a reduction


class IsochronCallback(Callback):
    """Weights the gradient of every loss and lets the job see the model. Means that a training step, or the end of a
    training epoch, logs with sync_dist=True, which Lightning averages over workers, are weighted, too, so that the
    average is over samples."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._prepared = False
        self._mine = self._everybodys = 0  # samples of the epoch so far
        self._hook: Any = None  # of the loss whose backward pass is under way

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if isinstance(trainer.limit_train_batches, int):
            return
        try:
            with contextlib.suppress(Error):  # the module makes the loader
                _ = self.job.steps_per_epoch
        except TypeError:
            raise ValueError(
                f"limit_train_batches of the Trainer is {trainer.limit_train_batches} with a stream, of which it takes "
                "a batch ahead to see the end, while the job deals a batch when the one before it is computed; "
                "permitted: the number of steps of an epoch"
            ) from None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._prepared:
            self.job.prepare(trainer.strategy.model, *trainer.optimizers)
            self._weigh_logs(trainer, pl_module)
            self._prepared = True

    def _weigh_logs(self, trainer: Any, module: Any) -> None:
        log = module.log
        signature = inspect.signature(log)

        def weighted(*arguments: Any, **options: Any) -> None:
            told = signature.bind(*arguments, **options).arguments
            exchanged = told.get("sync_dist") and trainer.training
            if exchanged and isinstance(told["value"], (int, float, torch.Tensor)):
                self._weigh_log(told, module)
            log(**told)

        module.log = weighted

    def _weigh_log(self, told: dict[str, Any], module: Any) -> None:
        reduction = told.get("reduce_fx", "mean")
        name = str(getattr(reduction, "__name__", reduction)).lower()
        value, counts = told["value"], self.job.share_counts
        if name in ("mean", "avg"):
            weight, samples = self._weight_of_logs(module)
            told["value"] = value * weight
            told["batch_size"] = samples  # of all workers: the mean over an epoch is over samples, too
        elif name in NOTHING and counts and counts[self.job.rank] == 0:  # of a sample that stands in
            floats = isinstance(value, torch.Tensor) and value.is_floating_point()
            told["value"] = torch.full_like(value, NOTHING[name]) if floats else NOTHING[name]

    def _weight_of_logs(self, module: Any) -> tuple[float, int]:
        """The weight and everybody's samples in the step under way, or behind the last one in the whole epoch."""
        counts = self.job.share_counts
        if counts and module._current_fx_name != "on_train_epoch_end":
            return self.job.share_weight, sum(counts)
        return (self._mine * self.job.size / self._everybodys, self._everybodys) if self._everybodys else (1.0, 1)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._mine = self._everybodys = 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if counts := self.job.share_counts:
            self._mine += counts[self.job.rank]
            self._everybodys += sum(counts)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """With a limit Lightning does not ask a stream for more than its last batch, so that it has not ended yet."""
        self.job.finish_step()
        source = self.job._source
        if isinstance(source, StreamSource) and source.left(1) == 0:
            self.job._begin_step()  # there is none

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        """Weights the gradient instead of the loss, which its own backward pass may need, or the module behind it."""
        weight = self.job.weight
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        seen = loss.detach() if scaler is None else loss.detach() / scaler.scale(torch.ones_like(loss))
        if pl_module.automatic_optimization:  # which has divided the loss already
            seen = seen * trainer.accumulate_grad_batches
        else:
            self.job._models.arm()  # as manual_backward() has armed DDP
        _ = seen * weight  # the job logs what its weight is multiplied with
        factor = float(weight)
        self._hook = loss.register_hook(lambda gradient: gradient * factor)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._hook.remove()  # the graph may be kept for another pass

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.job.finish_step()

    def state_dict(self) -> dict[str, Any]:
        return self.job.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.job.load_state_dict(state_dict)
