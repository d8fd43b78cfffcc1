"""Hugging Face's Trainer: give it a job.

    job = isochron.torch.Job(global_batch=256)
    trainer = IsochronTrainer(model, arguments, train_dataset=dataset, job=job)
    trainer.train()
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import RandomSampler
from transformers import Trainer, TrainerCallback

from isochron.torch.job import Job
from isochron.torch.lengths import lengths_of
from isochron.torch.loader import Loader
from isochron.torch.source import is_stream

STATE = "isochron.json"  # in a checkpoint's folder
_logger = logging.getLogger("isochron")


class IsochronTrainer(Trainer):
    """A Trainer whose batches and weights are the job's. Gradient accumulation stays the Trainer's; its checkpoints
    hold the job's place, so that a run that is resumed goes on with the samples that were not used."""

    def __init__(
        self, *arguments: Any, job: Job, loader_options: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.job = job
        self.loader_options = loader_options or {}  # of job.loader(), such as lengths= and cost=
        self.model_accepts_loss_kwargs = False  # losses are means over this worker's samples
        self._looks_at_labels = "count" not in self.loader_options
        self.args.ignore_data_skip = True  # the job knows which samples are left
        self.add_callback(_Together(self))

    def get_train_dataloader(self) -> Loader:  # type: ignore[override]
        if self.args.dataloader_drop_last and self.job.options.last_batch != "drop":
            raise ValueError("dataloader_drop_last is True; say last_batch='drop' to the Job, or leave it out")
        sampler: Any = self._get_train_sampler()
        told: dict[str, Any] = {}
        if hasattr(sampler, "lengths"):  # every step is dealt by length instead, in the job's order
            told = {"lengths": sampler.lengths, "collate": "padded"}
        elif not isinstance(sampler, RandomSampler):
            told = {"sampler": sampler}
        told = {**told, **self.loader_options}
        dataset: Any = self.train_dataset
        if hasattr(dataset, "remove_columns") and not is_stream(dataset):
            if isinstance(told.get("lengths"), str):  # a column that the model may know nothing of
                told["lengths"] = lengths_of(dataset, told["lengths"])
            dataset, collate_fn = self._remove_unused_columns(dataset, "Training"), self.data_collator
        else:
            collate_fn = self._get_collator_with_removed_columns(self.data_collator, "Training")
        return self.job.loader(
            dataset,
            collate_fn=collate_fn,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            **told,
        )

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """The batches of an accumulation, of which each is dealt when the one before it is computed."""
        return _Batches(epoch_iterator, num_batches), None

    def train(self, resume_from_checkpoint: Any = None, *arguments: Any, **options: Any) -> Any:
        if resume_from_checkpoint:
            folder = resume_from_checkpoint
            if folder is True:
                from transformers.trainer_utils import get_last_checkpoint

                folder = get_last_checkpoint(self.args.output_dir)
            if folder is not None and (Path(folder) / STATE).exists():
                self.job.load_state_dict(json.loads((Path(folder) / STATE).read_text()))
        return super().train(resume_from_checkpoint, *arguments, **options)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *more: Any, **options: Any) -> Any:
        result: Any = super().compute_loss(model, inputs, return_outputs, *more, **options)
        if not model.training:
            return result
        if self._looks_at_labels:
            self._look_at_labels(inputs.get("labels"))
        if return_outputs:
            loss, outputs = result
            return loss * self.job.weight, outputs
        return result * self.job.weight

    def _look_at_labels(self, labels: Any) -> None:
        """Those of the first batch: padding there means that the loss is a mean over tokens."""
        self._looks_at_labels = False
        if isinstance(labels, torch.Tensor) and labels.ndim > 1 and (labels == -100).any():
            _logger.warning(
                "some labels are -100, so that the loss is a mean over those that are not, but workers count by their "
                "samples; for the mean over all of them give loader_options={'lengths': how many a sample has, "
                "'count': 'lengths'}"
            )


class _Batches:
    def __init__(self, batches: Iterator[Any], count: int) -> None:
        self._batches, self._count = batches, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return islice(self._batches, self._count)


class _Together(TrainerCallback):
    """Trainer and job."""

    def __init__(self, trainer: IsochronTrainer) -> None:
        self._trainer = trainer
        self._prepared = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not self._prepared:
            self._trainer.job.prepare(self._trainer.model_wrapped)
            self._prepared = True

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        saved = self._trainer.job.state_dict()
        if self._trainer.job.is_first:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / STATE).write_text(json.dumps(saved))

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._trainer.job.finish_step()
