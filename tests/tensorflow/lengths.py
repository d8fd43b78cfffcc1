"""Samples of unequal length, dealt by cost, padded and ragged: the result of one process, with means over tokens."""

import time

import keras
import models
import numpy as np
import tensorflow as tf
from pipelines import double_precision
from running import make_job, raises

from isochron import _core

TOLERANCE = 1e-10
SIZE, BATCH, VOCABULARY = 103, 20, 12


def speeches():
    """Sequences of 3 to 40 tokens, short ones more often."""
    random = np.random.default_rng(9)
    counts = np.clip(np.exp(2.0 + 0.8 * random.standard_normal(SIZE)).round(), 2, 39).astype(np.int64) + 1
    tokens = tf.RaggedTensor.from_row_lengths(random.integers(0, VOCABULARY, counts.sum()), counts)
    return {"tokens": tokens, "length": counts - 1}


def make_model(seed=3):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Embedding(VOCABULARY, 6), keras.layers.Dense(VOCABULARY)])
    model.build((None,))
    return model


def token_loss(model, batch):
    """The mean over tokens, each predicted from the one before it."""
    tokens, length = batch["tokens"], batch["length"]
    if isinstance(tokens, tf.RaggedTensor):
        x, y = tokens[:, :-1].flat_values, tokens[:, 1:].flat_values
    else:
        there = tf.sequence_mask(length, tf.shape(tokens)[1] - 1)
        x, y = tf.boolean_mask(tokens[:, :-1], there), tf.boolean_mask(tokens[:, 1:], there)
    scores = model(x)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))


def training_step(model, optimizer):
    def step(batch):
        with tf.GradientTape() as tape:
            loss = token_loss(model, batch)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def train_alone(epochs):
    model, optimizer = make_model(), models.momentum()
    step, data = training_step(model, optimizer), speeches()
    sampler = _core.Sampler(SIZE, BATCH)
    for _ in range(epochs * sampler.steps_per_epoch):
        numbers = sampler.samples(sampler.position, sampler.position + sampler.step_size)
        step({"tokens": tf.gather(data["tokens"], numbers), "length": data["length"][numbers]})
        sampler.advance()
    return model


def sleep_for(tokens, rank):
    """The second worker is eight times as slow. What else a step takes, new shapes are traced above all, is less."""
    time.sleep(2e-3 * tokens * (1 + 7 * rank))


def check(collate, epochs=4, weighting="exact"):
    job = make_job(global_batch=BATCH, weighting=weighting)
    model, optimizer = make_model(3 + job.rank), models.momentum()
    job.prepare(model, optimizer)
    train = job.step(training_step(model, optimizer))
    data, used, shares = speeches(), [], []
    for _ in job.epochs(epochs):
        for batch in job.dataset(data, lengths="length", collate=collate, count="lengths"):
            counts = int(tf.reduce_sum(batch["length"]))
            shares.append(len(batch["length"]))
            used += batch["length"].numpy().tolist()
            if weighting == "exact":
                sleep_for(counts, job.rank)
            train(batch)
        assert job.ledger.complete
    totals = job.gather(float(sum(used)))
    assert sum(totals) == epochs * data["length"].sum()
    assert job.size == 1 or len(set(shares)) > 2
    if job.size > 1 and weighting == "exact":
        assert totals[0] > 1.2 * totals[1], totals
    far = models.difference(model, train_alone(epochs))
    job.close()
    return far


def pipeline(mapped=False):
    """The same sequences in an order of tf.data's own, another one in every epoch: ragged, or of an unknown length."""
    tf.random.set_seed(5)
    data = tf.data.Dataset.from_tensor_slices(speeches()).shuffle(64, seed=7)
    return data.map(lambda one: {**one, "tokens": one["tokens"] + 0}).prefetch(4) if mapped else data.prefetch(4)


def train_alone_on_pipeline(epochs):
    model, optimizer = make_model(), models.momentum()
    step, data = training_step(model, optimizer), pipeline()
    for _ in range(epochs):
        for batch in data.batch(BATCH):
            step(batch)
    return model


def train_on_pipeline(collate, folder, said="length", cost="attention", epochs=4, saved=9):
    """Goes on from a checkpoint in the middle of the second epoch."""
    for part in range(2):
        job = make_job(global_batch=BATCH)
        model, optimizer = make_model(3 + job.rank + 10 * part), models.momentum()
        job.prepare(model, optimizer)
        if part == 1:
            job.restore(folder / collate)
        train = job.step(training_step(model, optimizer))
        data, total = pipeline(mapped=collate == "padded"), 0
        for _ in job.epochs(epochs):
            for batch in job.dataset(data, lengths=said, cost=cost, collate=collate, count="lengths"):
                counts = int(tf.reduce_sum(batch["length"]))
                total += counts
                sleep_for(counts, job.rank)
                train(batch)
                if part == 0 and job.step_number == saved:
                    job.save(folder / collate)
                    job.stop()
            assert part == 0 or job.ledger.complete
        totals = job.gather(float(total))
        assert job.size == 1 or totals[0] > 1.2 * totals[1], totals
        job.close()
    return models.difference(model, train_alone_on_pipeline(epochs))


def lengths_pipeline(folder):
    """A tf.data.Dataset of one's own, whose lengths are found as the samples arrive."""
    with double_precision():
        far = max(
            train_on_pipeline("packed", folder),
            train_on_pipeline("padded", folder, said=lambda sample: sample["length"], cost="linear"))  # fmt: skip
        assert far <= TOLERANCE, far
    return f"off by {far:.2g}"


def lengths(folder):
    """Ragged and padded batches, dealt by cost."""
    with double_precision():
        far = max(check(collate) for collate in ("packed", "padded"))
        assert far <= TOLERANCE, far
    return f"off by {far:.2g}"


def lengths_unweighted(folder):
    with double_precision():
        far = check("padded", weighting="mean")
        assert far > 1e4 * TOLERANCE, far


def lengths_mistakes(folder):
    job, data = make_job(global_batch=BATCH), speeches()
    for words, options in (
        ("lengths are 2 numbers; permitted: one for each", {"lengths": [1, 2]}),
        ("lengths is 'words'; permitted: an entry", {"lengths": "words"}),
        ("collate is 'stacked'; permitted: padded, packed", {"lengths": "length", "collate": "stacked"}),
        ("cost is 'quadratic'; permitted: linear", {"lengths": "length", "cost": "quadratic"}),
        ("count is 'lengths' without lengths=", {"count": "lengths"}),
        ("the length of sample 0 is -1", {"lengths": lambda number: -1.0}),
    ):
        raises(ValueError, words, lambda options=options: job.dataset(data, **options))
    stream = tf.data.Dataset.from_tensor_slices(np.zeros(40))
    raises(ValueError, "lengths of a tf.data.Dataset are of type list", lambda: job.dataset(stream, lengths=[1] * 40))
    images = stream.map(lambda one: tf.ensure_shape(tf.py_function(tf.identity, [one], tf.float64), None))
    raises(ValueError, "permitted: tensors of which the first", lambda: job.dataset(images, lengths=lambda one: 1.0))
    job.close()


CASES = {case.__name__: case for case in (
    lengths, lengths_pipeline, lengths_unweighted, lengths_mistakes)}  # fmt: skip
