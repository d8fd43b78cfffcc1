"""Keras' fit() on all workers of a job, for models as users wrote them.

Keras calls train_function once a step; ours takes the batch, lets the model's own train_step compute, and leaves the
rest to the job. Metrics are added up over the workers before their results are taken, so that logs, progress bars and
callbacks see those of the global batch, the same on every worker.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from isochron.tensorflow.job import Job


def compile_model(job: Job, model: keras.Model, arguments: dict[str, Any]) -> KerasFit:
    given = dict(arguments)
    jit_compile = given.pop("jit_compile", False) is True  # Keras' "auto" would compile anew for every batch size
    for name, permitted in (("steps_per_execution", 1), ("run_eagerly", False)):
        if given.get(name, permitted) != permitted:
            raise ValueError(f"{name} is {given[name]!r}; permitted in a job: {permitted!r}")
    model.compile(**given, jit_compile=False)
    job.prepare(model, model.optimizer)
    return KerasFit(job, model, jit_compile)


class KerasFit:
    """Takes over from the model what has to do with the other workers."""

    def __init__(self, job: Job, model: keras.Model, jit_compile: bool) -> None:
        self._job, self._model = job, model
        self._step = job.make_step(
            model.train_step,
            states=lambda: model.metrics_variables,
            jit_compile=jit_compile,
            autograph=False,
        )
        self._results = tf.function(self._results_of, autograph=False)
        self._logs: dict[str, Any] | None = None  # of the epoch so far; None: not training
        self._loss_before = self._loss_now = (0.0, 0.0)  # the tracker's total and count
        self._optimizer = model.optimizer
        model.train_function = None
        model.make_train_function = self._make_train_function
        model.get_metrics_result = self._get_metrics_result
        model.reset_metrics = self._reset_metrics
        model.fit = self._fit

    def undo(self) -> None:
        model = self._model
        del model.make_train_function, model.get_metrics_result, model.reset_metrics, model.fit
        model.train_function = None

    def _make_train_function(self, force: bool = False) -> Any:
        del force
        if self._model.optimizer is not self._optimizer:
            raise RuntimeError("the model was compiled again; call job.compile() in place of model.compile()")
        self._model.train_function = self._train
        return self._train

    def _fit(self, *arguments: Any, **options: Any) -> Any:
        bound = inspect.signature(type(self._model).fit).bind(self._model, *arguments, **options)
        given = bound.arguments
        _check(given)
        if not isinstance(given["x"], tf.data.Dataset):
            _take_arrays(self._job, given)
        _check_steps(given)
        if given.get("class_weight"):
            given["x"] = _weighted_by_class(given["x"], given.pop("class_weight"))
        if not self._job.is_first and given.get("callbacks"):
            given["callbacks"] = [one for one in _listed(given["callbacks"]) if not isinstance(one, WRITERS)]
        with _first_worker_saves(self._job, self._model), warnings.catch_warnings():
            # Keras cannot know how many steps are left of an epoch, nor that the job shuffles.
            warnings.filterwarnings("ignore", message="Your input ran out of data")
            warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
            return type(self._model).fit(*bound.args, **bound.kwargs)

    def _train(self, iterator: Iterator[Any]) -> dict[str, Any]:
        done = None
        while done is None:  # a step that was dealt anew
            done = self._job.run_step(self._step, (self._job.next_batch(iterator),), self._loss_of)
        logs, states = done
        if self._job.left_out:
            self._logs = self._logs or {}
        else:
            self._loss_before = self._loss_now
            self._logs = {**(logs if isinstance(logs, dict) else {}), **self._results(states)}
        if self._job.stopping:
            self._model.stop_training = True
        return self._logs

    def _loss_of(self, logs: Any, states: list[tf.Tensor]) -> float | None:
        """The mean loss of this step; Keras' tracker holds the sum over the epoch. None if there is no tracker."""
        del logs
        place = 0
        for metric in self._model.metrics:
            if metric.name == "loss" and len(metric.variables) == 2:
                total, count = float(states[place]), float(states[place + 1])
                before, count_before = self._loss_before
                self._loss_now = total, count
                return (total - before) / (count - count_before) if count > count_before else None
            place += len(metric.variables)
        return None

    def _results_of(self, states: list[tf.Tensor]) -> dict[str, Any]:
        """The metrics' results if their variables were `states`."""
        results: dict[str, Any] = {}
        place = 0
        for metric in self._model.metrics:
            mine = states[place : place + len(metric.variables)]
            place += len(mine)
            values = [tf.cast(value, variable.dtype) for value, variable in zip(mine, metric.variables, strict=True)]
            result = metric.stateless_result(values)
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results

    def _get_metrics_result(self) -> dict[str, Any]:
        model = self._model
        if tf.inside_function():
            return type(model).get_metrics_result(model)
        if self._logs is not None:
            return dict(self._logs)
        if self._job.take_shared_evaluation():
            return self._results(self._sum_states())
        return type(model).get_metrics_result(model)

    def _sum_states(self) -> list[tf.Tensor]:
        variables = self._model.metrics_variables
        flat = [float(number) for variable in variables for number in tf.reshape(variable.value, [-1])]
        sums = iter(self._job.sum(flat))
        return [
            tf.reshape(tf.constant([next(sums) for _ in range(variable.value.shape.num_elements())]), variable.shape)
            for variable in variables
        ]

    def _reset_metrics(self) -> None:
        self._logs = None
        self._loss_before = self._loss_now = (0.0, 0.0)
        type(self._model).reset_metrics(self._model)


def _weighted_by_class(dataset: tf.data.Dataset, weights: dict[int, float]) -> tf.data.Dataset:
    """As fit() does it itself, but for reading ahead."""
    # Keras offers it nowhere else.
    from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

    return dataset.map(make_class_weight_map_fn(weights))


INSTEAD = {  # of what fit() cannot do by itself with a dataset in a job
    "y": "job.dataset((x, y)), or arrays in place of the dataset",
    "sample_weight": "job.dataset((x, y, weights)), or arrays in place of the dataset",
    "validation_split": "validation_data=..., of samples that job.dataset(...) does not get, or arrays in place of the "
    "dataset",
}


def _check(given: dict[str, Any]) -> None:
    """Refuses, before any work, what would not give the result of one process."""
    if given.get("batch_size") is not None:
        raise ValueError(
            f"batch_size of fit() is {given['batch_size']}; permitted in a job: "
            f"Job(global_batch={given['batch_size']}), which its workers divide"
        )
    if any(isinstance(one, keras.callbacks.BackupAndRestore) for one in _listed(given.get("callbacks") or [])):
        raise ValueError(
            "callbacks of fit() have a BackupAndRestore, which does not know the job's place in the data; permitted in "
            "a job: job.callback(backup=...)"
        )
    if not isinstance(given.get("x"), tf.data.Dataset):
        _check_arrays(given)
        return
    for name, instead in INSTEAD.items():
        if given.get(name) is not None and not (name == "validation_split" and not given[name]):
            told = given[name] if name == "validation_split" else "given"
            raise ValueError(f"{name} of fit() is {told} with a dataset; permitted in a job: {instead}")


def _check_arrays(given: dict[str, Any]) -> None:
    for name in ("x", "y", "sample_weight"):
        value = given.get(name)
        arrays = all(isinstance(one, (np.ndarray, tf.Tensor)) for one in tf.nest.flatten(value))
        if not arrays and (value is not None or name == "x"):
            raise ValueError(
                f"{name} of fit() is of type {type(value).__name__}; permitted in a job: NumPy arrays and tensors, or "
                "job.dataset(...) for all of it"
            )
    if given.get("sample_weight") is not None and given.get("y") is None:
        raise ValueError("sample_weight of fit() is given without y; permitted: x, y and sample_weight")
    if given.get("shuffle", True) is False:
        raise ValueError(
            "shuffle of fit() is False with arrays, whose order follows the job's seed=; permitted: True, or a "
            "tf.data.Dataset, whose order is its own, as in job.dataset(tf.data.Dataset.from_tensor_slices((x, y)))"
        )


def _take_arrays(job: Job, given: dict[str, Any]) -> None:
    """Makes the job's dataset of them; the last ones are for validation, as Keras would cut them off."""
    arrays = tuple(given.pop(name, None) for name in ("x", "y", "sample_weight"))
    split = given.pop("validation_split", None)
    if split and given.get("validation_data") is None:
        # Keras offers it nowhere else.
        from keras.src.trainers.data_adapters.array_slicing import train_validation_split

        arrays, given["validation_data"] = train_validation_split(arrays, split)
    given["x"] = job.dataset(tuple(_as_tuple(one) for one in arrays if one is not None))


def _as_tuple(arrays: Any) -> Any:
    """A tf.data.Dataset takes lists for arrays."""
    return tuple(arrays) if isinstance(arrays, list) else arrays


def _check_steps(given: dict[str, Any]) -> None:
    steps = given.get("steps_per_epoch")
    if steps is not None and given["x"].cardinality() != tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            f"steps_per_epoch is {steps} with a dataset that ends; permitted: with job.dataset(...).repeat()"
        )


@contextlib.contextmanager
def _first_worker_saves(job: Job, model: keras.Model) -> Iterator[None]:
    """While Keras trains, ModelCheckpoint and the like run on all workers; one of them writes."""
    if job.is_first:
        yield
        return
    model.save = model.save_weights = lambda *arguments, **options: None
    try:
        yield
    finally:
        del model.save, model.save_weights


WRITERS = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)  # of files that the first worker writes


def _listed(callbacks: Any) -> list[Any]:
    return list(getattr(callbacks, "callbacks", callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]))


class JobCallback(keras.callbacks.Callback):
    """Writes evaluations into the run log. With `backup`, the prefix of a checkpoint, the job is saved there after
    every epoch, or every `backup_steps` steps, and when it fails, and fit() goes on from there if it exists."""

    def __init__(self, job: Job, backup: str | None = None, backup_steps: int | None = None) -> None:
        super().__init__()
        self._job, self._backup, self._backup_steps = job, backup, backup_steps

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._job.rescue = self._backup
        if self._backup is not None and self._job.has_checkpoint(self._backup):
            self._job.restore(self._backup)
            self.model._initial_epoch = self._job.epoch  # as Keras' BackupAndRestore does

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._backup is not None and self._backup_steps and self._job.step_number % self._backup_steps == 0:
            self._job.save(self._backup)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = logs or {}
        if "val_loss" in logs:
            accuracy = next((value for name, value in logs.items() if name.startswith("val_") and "acc" in name), None)
            self._job.note_evaluation(float(logs["val_loss"]), math.nan if accuracy is None else float(accuracy))
        if self._backup is not None and not self._backup_steps:
            self._job.save(self._backup)
