"""Training on unequal shares against training on the whole batch in one process, with other shares at every step."""

import keras
import models
import numpy as np
import tensorflow as tf

import isochron.tensorflow as isochron
from isochron import _core

BATCH = 24
STEPS = 50
TOLERANCE = 1e-5
TIMEOUT = 120


def shares(step, workers):
    """Some composition of the batch; about every other one has a worker without samples."""
    generator = np.random.default_rng(step)
    cuts = np.sort(generator.integers(0, BATCH + 1, workers - 1))
    if step % 2 and workers > 1:
        cuts[0] = 0
    return np.diff([0, *cuts, BATCH]).tolist()


def bind(job):
    job.set_bounds([(size, size) for size in shares(job.step_number, job.size)])


def reference_batches(samples):
    """What the workers take together, a step at a time."""
    sampler = _core.Sampler(len(samples[0]), BATCH)
    for _ in range(STEPS):
        first = sampler.position
        numbers = sampler.samples(first, first + sampler.step_size)
        yield tuple(array[numbers] for array in samples)
        sampler.advance()


def training_step(model, optimizer):
    """As a user writes it: what a job and one process run alike."""
    loss_function = models.loss_function()

    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train


def loop(name, make_optimizer, **options):
    job = isochron.Job(global_batch=BATCH, min_batch=0, timeout=TIMEOUT, **options)
    optimizer = make_optimizer()
    model, samples = models.make(name, seed=3 + job.rank)  # the first one's variables count
    job.prepare(model, optimizer)
    losses, sizes = [], []
    train = job.step(training_step(model, optimizer))
    bind(job)
    while job.step_number < STEPS:
        for x, y in job.dataset(samples):
            sizes.append(len(x))
            losses.append(float(train(x, y)))
            bind(job)
            if job.step_number == STEPS:
                break
    assert job.traces == 1, job.traces
    assert len(set(sizes)) > 5 or job.size == 1, sizes
    job.close()
    return model, losses


def reference_loop(name, make_optimizer):
    optimizer = make_optimizer()
    model, samples = models.make(name)
    losses = []
    train = tf.function(training_step(model, optimizer), reduce_retracing=True)
    for x, y in reference_batches(samples):
        losses.append(float(train(tf.constant(x), tf.constant(y))))
    return model, losses


def check_loop(name, make_optimizer=models.momentum):
    model, losses = loop(name, make_optimizer)
    reference, reference_losses = reference_loop(name, make_optimizer)
    assert models.difference(model, reference) <= TOLERANCE, models.difference(model, reference)
    np.testing.assert_allclose(losses, reference_losses, atol=TOLERANCE)
    return f"off by {models.difference(model, reference):.2g}"


def unweighted():
    """The negative control: without weights the same check fails."""
    model, _ = loop("mlp", models.momentum, weighting="mean")
    reference, _ = reference_loop("mlp", models.momentum)
    assert models.difference(model, reference) > 100 * TOLERANCE, models.difference(model, reference)
    return f"off by {models.difference(model, reference):.2g}"


class Bind(keras.callbacks.Callback):
    def __init__(self, job):
        super().__init__()
        self._job = job
        bind(job)

    def on_train_batch_end(self, batch, logs=None):
        bind(self._job)


def fitted(name, metrics):
    job = isochron.Job(global_batch=BATCH, min_batch=0, timeout=TIMEOUT)
    model, samples = models.make(name, seed=3 + job.rank)
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function(), metrics=metrics)
    history = model.fit(job.dataset(samples), epochs=4, verbose=0, callbacks=[job.callback(), Bind(job)])
    steps, traces = job.step_number, job.traces
    job.close()
    assert traces == 1, traces
    return model, history.history, steps


def check_fit(name):
    model, history, steps = fitted(name, ["accuracy"])
    reference, samples = models.make(name)
    reference.compile(optimizer=models.momentum(), loss=models.loss_function(), metrics=["accuracy"])
    per_epoch = -(-models.SAMPLES // BATCH)
    assert steps == 4 * per_epoch, steps
    logs = [(len(x), reference.train_on_batch(x, y, return_dict=True))
            for _, (x, y) in zip(range(steps), reference_batches(samples), strict=False)]  # fmt: skip
    assert models.difference(model, reference) <= TOLERANCE, models.difference(model, reference)
    for name in ("loss", "accuracy"):
        epochs = [logs[first : first + per_epoch] for first in range(0, steps, per_epoch)]
        means = [sum(count * float(log[name]) for count, log in epoch) / models.SAMPLES for epoch in epochs]
        np.testing.assert_allclose(history[name], means, atol=TOLERANCE)
    return f"off by {models.difference(model, reference):.2g}"


CASES = {
    **{f"loop_{name}": lambda folder, name=name: check_loop(name) for name in models.MODELS},
    **{f"fit_{name}": lambda folder, name=name: check_fit(name) for name in models.MODELS},
    "unweighted": lambda folder: unweighted(),
}
