"""Cells of the matrix of loops with Hugging Face's Trainer."""

import functools
import pathlib
import tempfile

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import IterableDataset

from framework_cells import checkpointed
from loop_cells import BATCH, SIZE, STEPS, Points, cell, small_model
from torch_feature_cases import torchrun_variables


class Entries(Points):
    def __getitem__(self, index):
        number, x, y = super().__getitem__(index)
        return {"number": number, "x": x, "labels": y, "input_ids": [0] * (index % 7 + 1)}


class EntryStream(IterableDataset):
    def __iter__(self):
        entries = Entries()
        return (entries[index] for index in range(len(entries)))


def as_columns(size=SIZE):
    """The same as a dataset of Hugging Face's, with columns that the model does not know."""
    from datasets import Dataset

    entries = [Entries(size)[index] for index in range(size)]
    columns = {name: [torch.as_tensor(entry[name]).tolist() for entry in entries] for name in entries[0]}
    return Dataset.from_dict({**columns, "text": ["word"] * size, "length": [token_count(n) for n in range(size)]})


def as_entries(samples):
    """Knows what the model knows, as collators that pad do."""
    assert samples[0].keys() == {"number", "x", "labels"}
    kinds = {"number": torch.int64, "x": torch.float64, "labels": torch.float64}
    return {name: torch.stack([torch.as_tensor(sample[name], dtype=kind) for sample in samples])
            for name, kind in kinds.items()}  # fmt: skip


@torch.compiler.disable
def note_samples(run, number):
    run.compute(number)


def token_count(index):
    return index % 7 + 1


class Regressor(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.net, self.isochron_run = small_model(), run
        self.checkpoints = False

    def gradient_checkpointing_enable(self, **options):
        """As the Trainer asks models of Transformers."""
        self.checkpoints = True

    def forward(self, number, x, labels):
        if self.training:
            note_samples(self.isochron_run, number)
        value = checkpointed(self.net)(x) if self.checkpoints else self.net(x)
        return {"loss": functional.mse_loss(value, labels), "logits": value}


class TokenRegressor(Regressor):
    def forward(self, number, x, labels):
        value, tokens = super().forward(number, x, labels)["logits"], token_count(number)
        return {"loss": ((value - labels).square().squeeze(1) * tokens).sum() / tokens.sum(), "logits": value}


def trainer_run(run, job=None, model=None, resume=None, evaluate=False, batch=BATCH, folder=None, loader=None,
                columns=False, dataset=None, **options):  # fmt: skip
    """With the defaults of TrainingArguments unused columns are removed."""
    from transformers import TrainingArguments

    from isochron.torch.transformers import IsochronTrainer

    job = run.job(global_batch=batch) if job is None else job
    model = Regressor(run) if model is None else model
    folder = folder or tempfile.mkdtemp(dir=run.folder)
    options = {"num_train_epochs": 1, "save_strategy": "no", "lr_scheduler_type": "constant", "learning_rate": 0.01,
               "optim": "sgd", **options}  # fmt: skip
    with torchrun_variables():
        arguments = TrainingArguments(folder, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no",
                                      **options)  # fmt: skip
        data = as_columns if columns else Entries
        trainer = IsochronTrainer(model, arguments, train_dataset=data() if dataset is None else dataset, job=job,
                                  data_collator=as_entries, loader_options=loader,
                                  eval_dataset=data(40) if evaluate else None)  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
    assert model.checkpoints == options.get("gradient_checkpointing", False)
    run.modules = [model.net]
    return job


@cell("transformers", "one backward", "Trainer")
def trainer_plain(run):
    trainer_run(run)


@cell("transformers", "one backward", "mean over tokens")
def trainer_by_tokens(run):
    trainer_run(run, model=TokenRegressor(run), loader={"lengths": token_count, "count": "lengths"})


@cell("transformers", "accumulate", "gradient_accumulation_steps")
def trainer_accumulated(run, **more):
    trainer_run(run, batch=BATCH // 2, gradient_accumulation_steps=2, **more)


@cell("transformers", "early exit", "max_steps")
def trainer_stopped(run, **more):
    job = trainer_run(run, max_steps=11, **more)
    assert job.step == 11


@cell("transformers", "one backward", "group_by_length")
def trainer_grouped(run, **more):
    job = trainer_run(run, train_sampling_strategy="group_by_length", **more)
    assert job._replica.by_cost  # in place of the Trainer's sampler


@cell("transformers", "one backward", "batch_rebalance")
def trainer_rebalanced(run):
    job = trainer_run(run, train_sampling_strategy="batch_rebalance")
    assert job._replica.by_cost


@cell("transformers", "one backward", "dataloader_drop_last")
def trainer_dropped(run):
    """The job drops, so that it must be told."""
    with pytest.raises(ValueError, match="dataloader_drop_last is True; say last_batch='drop' to the Job"):
        trainer_run(run, dataloader_drop_last=True)
    run.jobs.pop().close()
    job = run.job(last_batch="drop")
    trainer_run(run, dataset=Entries(SIZE + 7), job=job, dataloader_drop_last=True)
    assert job.step == STEPS


@cell("transformers", "one backward", "evaluation in between")
def trainer_evaluated(run, **more):
    trainer_run(run, evaluate=True, eval_strategy="steps", eval_steps=4, **more)


@cell("transformers", "resume", "resume_from_checkpoint")
def trainer_resumed(run, **more):
    shared = str(pathlib.Path(run.folder) / "trainer")
    trainer_run(run, max_steps=6, save_strategy="steps", save_steps=6, folder=shared, **more)
    run.jobs[-1].close()
    model = Regressor(run)
    job = trainer_run(run, model=model, max_steps=SIZE // BATCH, resume=f"{shared}/checkpoint-6", folder=shared, **more)
    assert job.step == SIZE // BATCH and job.ledger.complete


for way, more in (("torch.compile", {"torch_compile": True, "torch_compile_backend": "aot_eager"}),
                  ("activation checkpointing", {"gradient_checkpointing": True})):  # fmt: skip
    cell("transformers", "one backward", way)(functools.partial(trainer_run, **more))
    cell("transformers", "accumulate", way)(functools.partial(trainer_accumulated, **more))
    cell("transformers", "early exit", f"max_steps, {way}")(functools.partial(trainer_stopped, **more))
    cell("transformers", "one backward", f"group_by_length, {way}")(functools.partial(trainer_grouped, **more))
    cell("transformers", "one backward", f"evaluation in between, {way}")(functools.partial(trainer_evaluated, **more))
    cell("transformers", "resume", way)(functools.partial(trainer_resumed, **more))


@cell("transformers", "stream", "max_steps")
def trainer_stream(run):
    job = trainer_run(run, dataset=EntryStream(), max_steps=STEPS)
    assert job.step == STEPS


@cell("transformers", "stream", "unused columns of a Hugging Face stream", needs="datasets")
def trainer_stream_of_columns(run):
    job = trainer_run(run, dataset=as_columns().to_iterable_dataset(), max_steps=STEPS)
    assert job.step == STEPS


@cell("transformers", "stream", "gradient_accumulation_steps")
def trainer_stream_accumulated(run):
    options = {"max_steps": STEPS, "gradient_accumulation_steps": 2}
    assert trainer_run(run, dataset=EntryStream(), batch=BATCH // 2, **options).step == 2 * STEPS


@cell("transformers", "one backward", "unused columns", needs="datasets")
def trainer_columns(run):
    trainer_run(run, columns=True, evaluate=True, eval_strategy="steps", eval_steps=4)


@cell("transformers", "accumulate", "unused columns", needs="datasets")
def trainer_columns_accumulated(run):
    trainer_run(run, columns=True, batch=BATCH // 2, gradient_accumulation_steps=2)


@cell("transformers", "one backward", "unused columns and group_by_length", needs="datasets")
def trainer_columns_grouped(run):
    job = trainer_run(run, columns=True, train_sampling_strategy="group_by_length")
    assert job._replica.by_cost


@cell("transformers", "one backward", "mean over tokens of a column", needs="datasets")
def trainer_columns_by_tokens(run):
    options = {"lengths": "length", "count": "lengths"}
    trainer_run(run, model=TokenRegressor(run), columns=True, loader=options)


@cell("transformers", "resume", "unused columns", needs="datasets")
def trainer_columns_resumed(run):
    trainer_resumed(run, columns=True)
