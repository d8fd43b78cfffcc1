"""Lightning: give the trainer the job's loader and this callback.

    job = isochron.torch.Job(global_batch=256)
    trainer = lightning.Trainer(strategy="ddp", callbacks=[IsochronCallback(job)], use_distributed_sampler=False)
    trainer.fit(module, job.loader(dataset))

Start it with torchrun or another launcher, so that the job finds its place before the trainer does.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback

from isochron.torch.job import Job


class IsochronCallback(Callback):
    """Weights every loss before backward and lets the job see the model. What a training step logs with sync_dist=True,
    which Lightning averages over workers, is weighted, too, so that the average is over samples."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._prepared = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._prepared:
            self.job.prepare(trainer.strategy.model, *trainer.optimizers)
            self._weigh_logs(trainer, pl_module)
            self._prepared = True

    def _weigh_logs(self, trainer: Any, module: Any) -> None:
        log = module.log

        def weighted(name: str, value: Any, *more: Any, sync_dist: bool = False, **options: Any) -> None:
            if sync_dist and trainer.training and isinstance(value, (int, float, torch.Tensor)):
                value = value * self.job.share_weight
                options["batch_size"] = 1  # steps count alike in the mean over an epoch
            log(name, value, *more, sync_dist=sync_dist, **options)

        module.log = weighted

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        weight = self.job.weight
        if pl_module.automatic_optimization:  # which has divided the loss already
            self.job.log_loss(loss * trainer.accumulate_grad_batches)
        loss.mul_(weight)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.job.finish_step()

    def state_dict(self) -> dict[str, Any]:
        return self.job.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.job.load_state_dict(state_dict)
