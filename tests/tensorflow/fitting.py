"""What users tell fit() besides a dataset, and datasets of their own that cannot be dealt out."""

import models
import numpy as np
import parity
import tensorflow as tf
from running import make_job, raises


def fit_options(folder):
    """What else fit() is told: class weights and weights of samples give the result of one process; what cannot is
    refused before anything has happened."""
    x, y = models.images()
    weights = np.random.default_rng(4).uniform(0.5, 2.0, len(y)).astype("float32")
    of_class = {0: 1.0, 1: 3.0, 2: 0.5}
    per_epoch = -(-models.SAMPLES // parity.BATCH)
    for samples, options in (((x, y), {"class_weight": of_class}), ((x, y, weights), {})):
        job = make_job(min_batch=0)
        model, _ = models.make("mlp", seed=3 + job.rank)
        job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
        model.fit(job.dataset(samples), epochs=2, verbose=0, callbacks=[parity.Bind(job)], **options)
        job.close()
        reference, _ = models.make("mlp")
        reference.compile(optimizer=models.momentum(), loss=models.loss_function())
        for _, batch in zip(range(2 * per_epoch), parity.reference_batches(samples), strict=False):
            reference.train_on_batch(*batch, **options)
        assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)
    job = make_job()
    model, _ = models.make("mlp")
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
    dataset = job.dataset((x, y))
    for words, wrong in (
        ("y of fit() is given; permitted in a job: job.dataset((x, y))", lambda: model.fit(x, y)),
        ("sample_weight of fit() is given", lambda: model.fit(dataset, sample_weight=weights)),
        ("validation_split of fit() is 0.2", lambda: model.fit(dataset, validation_split=0.2)),
        ("x of fit() is of type ndarray", lambda: model.fit(x)),
        ("steps_per_epoch is 4 with a dataset that ends", lambda: model.fit(dataset, steps_per_epoch=4)),
    ):
        raises(ValueError, words, wrong)
    assert job.step_number == 0
    ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]]))
    raises(ValueError, "a tf.data.Dataset of RaggedTensors; permitted", lambda: job.dataset(ragged))
    batched = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    raises(ValueError, "unbatch()", lambda: job.dataset(batched))
    job.close()


CASES = {"fit_options": fit_options}
