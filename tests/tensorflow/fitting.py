"""What users tell fit() besides a dataset, datasets that cannot be dealt out, and what a job tells of itself."""

import time

import keras
import models
import numpy as np
import parity
import tensorflow as tf
from running import make_job, make_train, raises


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
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    for words, wrong in (
        ("y of fit() is given with a dataset; permitted in a job: job.dataset((x, y))", lambda: model.fit(dataset, y)),
        ("sample_weight of fit() is given", lambda: model.fit(dataset, sample_weight=weights)),
        ("validation_split of fit() is 0.2", lambda: model.fit(dataset, validation_split=0.2)),
        ("batch_size of fit() is 8; permitted in a job: Job(global_batch=8)", lambda: model.fit(x, y, batch_size=8)),
        ("x of fit() is of type list; permitted in a job: NumPy arrays and", lambda: model.fit(x.tolist(), y)),
        ("y of fit() is of type list; permitted in a job: NumPy arrays and", lambda: model.fit(x, y.tolist())),
        ("sample_weight of fit() is given without y", lambda: model.fit(x, sample_weight=weights)),
        ("shuffle of fit() is False with arrays", lambda: model.fit(x, y, shuffle=False)),
        ("have a BackupAndRestore, which does not know", lambda: model.fit(dataset, callbacks=[backup])),
        ("steps_per_epoch is 4 with a dataset that ends", lambda: model.fit(dataset, steps_per_epoch=4)),
    ):
        raises(ValueError, words, wrong)
    assert job.step_number == 0
    ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]]))
    raises(ValueError, "a tf.data.Dataset of RaggedTensors; permitted", lambda: job.dataset(ragged))
    batched = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    raises(ValueError, "unbatch()", lambda: job.dataset(batched))
    job.close()


def fit_arrays(folder):
    """What fit() is given is dealt out as job.dataset() would, and validated on what plain Keras would cut off."""
    x, y = models.images()
    weights = np.random.default_rng(4).uniform(0.5, 2.0, len(y)).astype("float32")
    for samples, split in (((x, y, weights), 0.2), ((x, y), 0.0), ((tf.constant(x), tf.constant(y)), 0.3)):
        job = make_job(min_batch=0)
        model, _ = models.make("mlp", seed=3 + job.rank)
        job.compile(model, optimizer=models.momentum(), loss=models.loss_function(), weighted_metrics=["accuracy"])
        options = dict(zip(("x", "y", "sample_weight"), samples, strict=False))
        for epoch in range(2):  # a second call goes on with the same data
            found = model.fit(**options, initial_epoch=epoch, epochs=epoch + 1, validation_split=split, verbose=0,
                              callbacks=[parity.Bind(job)]).history  # fmt: skip
        assert job.epoch == 2 and job.ledger.complete, job
        job.close()
        reference, _ = models.make("mlp")
        reference.compile(optimizer=models.momentum(), loss=models.loss_function(), weighted_metrics=["accuracy"])
        cut = int(len(y) * (1.0 - split))
        taken, kept = (tuple(np.asarray(array)[part] for array in samples) for part in (slice(cut), slice(cut, None)))
        for _, batch in zip(range(2 * -(-cut // parity.BATCH)), parity.reference_batches(taken), strict=False):
            reference.train_on_batch(*batch)
        assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)
        if split:
            expected = reference.evaluate(*kept[:2], sample_weight=(*kept, None)[2], verbose=0)
            mine = found["val_loss"][0], found["val_accuracy"][0]
            np.testing.assert_allclose(mine, expected, atol=parity.TOLERANCE)


def compiled_again(folder):
    """In place of job.compile(), which everybody has in the fingers."""
    job = make_job()
    model, samples = models.make("mlp")
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
    dataset = job.dataset(samples)
    model.compile(optimizer=models.momentum(), loss=models.loss_function())
    words = "the model was compiled again; call job.compile() in place of model.compile()"
    raises(RuntimeError, words, lambda: model.fit(dataset, verbose=0))
    assert job.step_number == 0
    job.close()


def summary(folder):
    """The last of two workers takes 16 ms for a sample, the other one 4. Equal shares take 12 x 16 ms, the best ones 77
    ms: 2.5 times as fast, less what a step costs besides."""
    job = make_job()
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    while job.step_number < 24:
        for x, y in job.dataset(samples):
            time.sleep(len(x) * (0.016 if job.rank == job.size - 1 else 0.004))
            train(x, y)
    told = job.summary()
    assert told.steps == job.step_number and told.samples_per_second > 0, told
    assert 1.2 < told.over_equal_shares < 3.5, told
    assert f"about {told.over_equal_shares:.1f} times as fast as with equal shares" in str(told), told
    job.close()
    return str(told)


CASES = {case.__name__: case for case in (fit_options, fit_arrays, compiled_again, summary)}
