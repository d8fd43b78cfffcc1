"""Hugging Face's Trainer: give it a job.

    job = isochron.torch.Job(global_batch=256)
    trainer = IsochronTrainer(model, arguments, train_dataset=dataset, job=job)
    trainer.train()
"""

from __future__ import annotations

from typing import Any

from transformers import Trainer, TrainerCallback

from isochron.torch.job import Job
from isochron.torch.loader import Loader


class IsochronTrainer(Trainer):
    """A Trainer whose batches and weights are the job's. Gradient accumulation stays the Trainer's."""

    def __init__(self, *arguments: Any, job: Job, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.job = job
        self.model_accepts_loss_kwargs = False  # losses are means over this worker's samples
        self.add_callback(_Prepare(self))

    def get_train_dataloader(self) -> Loader:  # type: ignore[override]
        return self.job.loader(self.train_dataset, collate_fn=self.data_collator)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *more: Any, **options: Any) -> Any:
        result: Any = super().compute_loss(model, inputs, return_outputs, *more, **options)
        if not model.training:
            return result
        if return_outputs:
            loss, outputs = result
            return loss * self.job.weight, outputs
        return result * self.job.weight


class _Prepare(TrainerCallback):
    def __init__(self, trainer: IsochronTrainer) -> None:
        self._trainer = trainer
        self._prepared = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not self._prepared:
            self._trainer.job.prepare(self._trainer.model_wrapped)
            self._prepared = True

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._trainer.job.finish_step()
