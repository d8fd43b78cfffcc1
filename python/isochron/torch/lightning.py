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
    """Weights every loss before backward and lets the job see the model."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._prepared = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._prepared:
            self.job.prepare(trainer.strategy.model, *trainer.optimizers)
            self._prepared = True

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        loss.mul_(self.job.weight)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.job.finish_step()

    def state_dict(self) -> dict[str, Any]:
        return self.job.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.job.load_state_dict(state_dict)
