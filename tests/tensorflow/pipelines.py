"""tf.data pipelines of one's own, in double precision and with a worker that is slowed: the result of one process, or a
sentence that says what to do."""

import contextlib
import functools
import time

import keras
import loop_table
import models
import numpy as np
import parity
import tensorflow as tf
from running import make_job, make_train, raises

from isochron.tensorflow import data

TOLERANCE = 1e-10
EPOCHS = 2
SECONDS = (0.005, 0.02)  # a sample, on each of the two workers
SAVED = 14  # in the middle of the second epoch


@contextlib.contextmanager
def double_precision():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def images():
    x, y = models.images()
    return tf.data.Dataset.from_tensor_slices((x.astype("float64"), y))


def mapped():
    return images().map(lambda x, y: (2.0 * x - 1.0, y), num_parallel_calls=2).prefetch(4)


def shuffled():
    tf.random.set_seed(5)  # an order follows from it and the seed of shuffle(); models.make() has set others
    return images().shuffle(64, seed=7).map(lambda x, y: (x * x, y))


def batched():
    """What is computed for whole batches before the job deals single samples."""
    middle = images().batch(10).map(lambda x, y: (x - tf.reduce_mean(x), y)).unbatch()
    return middle.apply(tf.data.experimental.assert_cardinality(models.SAMPLES))


def padded():
    """Sentences of one to six words."""
    words, classes = models.sentences()
    ragged = tf.RaggedTensor.from_tensor(words, lengths=1 + np.arange(len(words)) % 6)

    def pad(sentence, y):
        return tf.ensure_shape(tf.pad(sentence, [[0, 6 - tf.shape(sentence)[0]]]), [6]), y

    return tf.data.Dataset.from_tensor_slices((ragged, classes)).map(pad)


def two_losses(model, optimizer):
    loss_function = models.loss_function()

    def train(x, y):
        with tf.GradientTape() as tape:
            out = model(x, training=True)
            loss = loss_function(y, out) + 0.1 * tf.reduce_mean(tf.square(out))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train


def clipped(model, optimizer):
    """By the norm of the global gradient: the optimizer sees no other."""
    optimizer.global_clipnorm = 0.05
    return parity.training_step(model, optimizer)


LOOPS = {  # the model, the pipeline, the step
    "mapped": ("mlp", mapped, parity.training_step),
    "shuffled": ("mlp", shuffled, parity.training_step),
    "batched": ("mlp", batched, parity.training_step),
    "padded": ("transformer", padded, parity.training_step),
    "two_losses": ("mlp", mapped, two_losses),
    "clipped": ("mlp", mapped, clipped),
}


def train_alone(name, pipeline, make_step=parity.training_step):
    model, _ = models.make(name)
    train = tf.function(make_step(model, models.momentum()), reduce_retracing=True)
    dataset = pipeline().batch(parity.BATCH)
    total = 0.0
    for _ in range(EPOCHS):
        for x, y in dataset:
            total += float(tf.reduce_sum(tf.square(tf.cast(x, tf.float64))))
            train(x, y)
    return model, total


def slow_down(job, samples):
    time.sleep(SECONDS[job.rank] * samples)


def check_split(run):
    """In the best of three turns, which all workers see alike. What `run` returns besides the split."""
    for _ in range(3):
        result, sizes = run()
        assert all(sum(of_step) <= parity.BATCH for of_step in sizes)
        if len(sizes[0]) == 1 or loop_table.follows(sizes):
            return result
    raise AssertionError(sizes)


def run_loop(name, pipeline, make_step):
    """A loop of one's own, on one worker or two."""
    job = make_job()
    model, _ = models.make(name, seed=3 + job.rank)
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = job.step(make_step(model, optimizer))
    dataset, sizes, total = pipeline(), [], 0.0
    for _ in job.epochs(EPOCHS):
        for x, y in job.dataset(dataset):
            sizes.append(job.batch_sizes)
            total += float(tf.reduce_sum(tf.square(tf.cast(x, tf.float64))))
            slow_down(job, len(x))
            train(x, y)
        assert job.ledger.complete
    reference, expected = train_alone(name, pipeline, make_step)
    far = models.difference(model, reference)
    assert far <= TOLERANCE, (pipeline.__name__, far)
    used = sum(job.gather(total))
    assert abs(used - expected) <= 1e-9 * abs(expected), (used, expected)
    job.close()
    return far, sizes


def own_pipelines(folder):
    """map, shuffle with a seed, batch and unbatch, ragged samples that are padded; two losses, clipping."""
    assert {*LOOPS, *FITS} == {*loop_table.ROWS}
    with double_precision():
        far = max(check_split(functools.partial(run_loop, *loop)) for loop in LOOPS.values())
    return f"off by {far:.2g}"


def weighted():
    """With a weight for each sample."""
    tf.random.set_seed(5)
    x, y = models.images()
    weights = np.random.default_rng(4).uniform(0.5, 2.0, len(y))
    return tf.data.Dataset.from_tensor_slices((x.astype("float64"), y, weights)).shuffle(64, seed=7)


FITS = {  # the model, the pipeline, what else fit() is told
    "fit_pipeline": ("mlp", shuffled, {}),
    "fit_class_weight": ("mlp", shuffled, {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}),
    "fit_sample_weight": ("mlp", weighted, {}),
    "fit_padded": ("transformer", padded, {}),
}


def run_fit(name, pipeline, options):
    sizes = []
    job = make_job(on_step=lambda job: sizes.append(job.batch_sizes))
    model, _ = models.make(name, seed=3 + job.rank)

    def slowed(x):
        slow_down(job, len(x))
        return x

    def slow(x, *rest):
        return tf.ensure_shape(tf.py_function(slowed, [x], x.dtype), x.shape), *rest

    job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
    model.fit(job.dataset(pipeline()).map(slow), epochs=EPOCHS, verbose=0, **options)
    assert job.ledger.complete
    reference, _ = models.make(name)
    reference.compile(optimizer=models.momentum(), loss=models.loss_function())
    dataset = pipeline().batch(parity.BATCH)
    for _ in range(EPOCHS):
        for batch in dataset:
            reference.train_on_batch(*batch, **options)
    far = models.difference(model, reference)
    assert far <= TOLERANCE, (pipeline.__name__, far)
    job.close()
    return far, sizes


def fit_pipeline(folder):
    """The same in Keras' fit(), also with weights of classes and samples."""
    with double_precision():
        far = max(check_split(functools.partial(run_fit, *fit)) for fit in FITS.values())
    return f"off by {far:.2g}"


def pipeline_resume(folder):
    """A shuffled pipeline goes on in the middle of an epoch with the order of that epoch."""
    with double_precision():
        for part in range(2):
            job = make_job()
            model, _ = models.make("mlp", seed=3 if part == 0 else 99)
            optimizer = models.momentum()
            job.prepare(model, optimizer)
            if part == 1:
                job.restore(folder / "pipeline")
            train = make_train(job, model, optimizer)
            dataset = shuffled()
            for _ in job.epochs(EPOCHS):
                for x, y in job.dataset(dataset):
                    train(x, y)
                    if part == 0 and job.step_number == SAVED:
                        job.save(folder / "pipeline")
                        job.stop()
            assert job.step_number == (SAVED + 1 if part == 0 else 22), job.step_number
            job.close()
        far = models.difference(model, train_alone("mlp", shuffled)[0])
        assert far <= TOLERANCE, far


def pipeline_mistakes(folder):
    """Each is refused with what to do instead, on all workers."""
    job = make_job()
    x, y = models.images()
    samples = tf.data.Dataset.from_tensor_slices((x, y))
    ragged = tf.ragged.constant([[1], [2, 3]])
    for words, wrong in (
        ("a tf.data.Dataset of batches; permitted: single samples", samples.batch(10, drop_remainder=True).prefetch(2)),
        ("a tf.data.Dataset of batches", samples.padded_batch(10)),
        ("of RaggedTensors; permitted: dense tensors, all samples of one shape: pad samples",
         tf.data.Dataset.from_tensor_slices(ragged)),
        ("of shape (None,); permitted: single samples of a known shape",
         tf.data.Dataset.from_tensor_slices(ragged).map(lambda one: one + 1)),
        ("samples in a RaggedTensor; permitted: dense arrays", (ragged, np.zeros(2))),
        ("samples in a RaggedTensor; permitted: dense arrays", ragged),
        ("give it one: assert_cardinality(samples)", samples.filter(lambda image, label: label > 0)),
    ):  # fmt: skip
        raises(ValueError, words, lambda wrong=wrong: job.dataset(wrong))
    model, _ = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    tf.random.set_seed(100 + job.rank)  # as without a seed: another order on every worker
    first = next(iter(job.dataset(samples.shuffle(64))))
    if job.size > 1:
        raises(ValueError, "begin epoch 0 with different samples; permitted: the same sequence", lambda: train(*first))
        assert job.step_number == 0 and job.ledger.used == 0
    job.close()


def stream_source(folder):
    """What a step that is dealt anew asks for again is there; other orders in the place of one that was are refused."""
    numbers = tf.data.Dataset.range(100)
    again = numbers.shuffle(100, seed=1)
    orders = [[int(one) for one in again] for _ in range(3)]

    def taken(source, epoch, first, last):
        return source.take(epoch, (first, last), list).tolist()

    def whole(source, epoch):
        return [one for first in range(0, 100, 20) for one in taken(source, epoch, first, first + 20)]

    source = data.StreamSource(numbers.shuffle(100, seed=1), keep=24)
    assert taken(source, 0, 12, 24) == orders[0][12:24]
    assert taken(source, 0, 0, 14) == orders[0][:14] and taken(source, 0, 14, 24) == orders[0][14:24]
    assert taken(source, 0, 30, 30) == []
    assert source.new_beginning() is not None and source.new_beginning() is None
    assert whole(source, 1) == orders[1]
    resumed = data.StreamSource(numbers.shuffle(100, seed=1), keep=24)
    assert taken(resumed, 2, 50, 60) == orders[2][50:60]
    raises(ValueError, "in another order when it is read again", lambda: taken(source, 1, 0, 10))
    steady = data.StreamSource(numbers.shuffle(100, seed=1, reshuffle_each_iteration=False), keep=24)
    assert whole(steady, 0) == whole(steady, 0) == whole(steady, 1)


CASES = {case.__name__: case for case in (
    own_pipelines, fit_pipeline, pipeline_resume, pipeline_mistakes, stream_source)}  # fmt: skip
