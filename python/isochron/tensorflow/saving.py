"""Checkpoints: TensorFlow's own format, with the job's state beside model and optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from isochron.errors import Error

if TYPE_CHECKING:
    from isochron.tensorflow.job import Job


class _Text(tf.train.experimental.PythonState):
    """A text inside a tf.train.Checkpoint."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text

    def serialize(self) -> str:
        return self.text

    def deserialize(self, string_value: str | bytes) -> None:
        self.text = string_value.decode() if isinstance(string_value, bytes) else string_value


def save(job: Job, path: str) -> None:
    failure, text = "", _Text(job.books.state(*job.save_places()))
    if job.is_first:
        try:
            _checkpoint(job, text).write(path)
        except (OSError, tf.errors.OpError) as error:
            failure = f"{path}: {error}"
    _share_failure(job, failure)


def restore(job: Job, path: str) -> None:
    text, failure = _Text(), ""
    if job.is_first:
        try:
            _checkpoint(job, text).read(path).assert_existing_objects_matched()
        except (OSError, AssertionError, tf.errors.OpError, ValueError) as error:
            failure = f"{path}: {error}"
    _share_failure(job, failure)
    job.take_over(job.gather(text.text)[0])


def exists(job: Job, path: str) -> bool:
    return job.gather(job.is_first and tf.io.gfile.exists(f"{path}.index"))[0]


def _checkpoint(job: Job, text: _Text) -> tf.train.Checkpoint:
    model, optimizer = job.trained
    if not model.built:
        raise ValueError("the model has no variables yet; build it before, by an Input layer, build() or a first call")
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return tf.train.Checkpoint(model=model, optimizer=optimizer, job=text)


def _share_failure(job: Job, failure: str) -> None:
    """An error of the first worker is one of all, as long as they hear each other."""
    if not job.failed:
        failure = job.gather(failure)[0]
    if failure:
        raise Error(failure)
