"""tf.data pipelines of one's own, in double precision and with a worker that is slowed: the result of one process, or a
sentence that says what to do. Samples have numbers, so that it is known which were used."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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


def images(first=0, last=models.SAMPLES):
    x, y = models.images()
    numbers = np.arange(first, last)
    return tf.data.Dataset.from_tensor_slices((numbers, x[first:last].astype("float64"), y[first:last]))


def mapped(*part):
    return images(*part).map(lambda n, x, y: (n, 2.0 * x - 1.0, y), num_parallel_calls=2).prefetch(4)


def shuffled(*part):
    tf.random.set_seed(5)  # an order follows from it and the seed of shuffle(); models.make() has set others
    return images(*part).shuffle(64, seed=7).map(lambda n, x, y: (n, x * x, y))


def batched():
    """What is computed for whole batches before the job deals single samples."""
    middle = images().batch(10).map(lambda n, x, y: (n, x - tf.reduce_mean(x), y)).unbatch()
    return middle.apply(tf.data.experimental.assert_cardinality(models.SAMPLES))


def augmented():
    """What is drawn follows from a seed for each sample, another one in every epoch."""
    tf.random.set_seed(5)
    seeds = tf.data.Dataset.random(seed=7, rerandomize_each_iteration=True)

    def noisy(sample, seed):
        n, x, y = sample
        return n, x + 0.3 * tf.random.stateless_normal(tf.shape(x), (seed, 0), dtype=x.dtype), y

    return tf.data.Dataset.zip(images(), seeds).map(noisy)


def padded():
    """Sentences of one to six words."""
    words, classes = models.sentences()
    ragged = tf.RaggedTensor.from_tensor(words, lengths=1 + np.arange(len(words)) % 6)

    def pad(number, sentence, y):
        return number, tf.ensure_shape(tf.pad(sentence, [[0, 6 - tf.shape(sentence)[0]]]), [6]), y

    return tf.data.Dataset.from_tensor_slices((np.arange(len(words)), ragged, classes)).map(pad)


def weighted():
    """With a weight for each sample."""
    tf.random.set_seed(5)
    x, y = models.images()
    weights = np.random.default_rng(4).uniform(0.5, 2.0, len(y))
    samples = np.arange(len(y)), x.astype("float64"), y, weights
    return tf.data.Dataset.from_tensor_slices(samples).shuffle(64, seed=7)


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


def passes(pipeline):
    """A plan: datasets, each as far as so many steps. Here one, whole."""
    dataset = pipeline()
    return [(dataset, None)] * EPOCHS


def left_early():
    dataset = shuffled()
    return [(dataset, 6)] * 3


def one_and_another():
    return [(mapped(0, 150), None), (shuffled(150, models.SAMPLES), None), (mapped(150, models.SAMPLES), None)]


@dataclass
class Loop:
    plan: Callable[[], list[Any]]
    model: str = "mlp"
    make_step: Callable[..., Any] = parity.training_step
    saved: int | None = None  # the step behind which another job goes on
    options: dict[str, Any] = field(default_factory=dict)  # of fit()
    repeated: bool = False


LOOPS = {
    "mapped": Loop(functools.partial(passes, mapped)),
    "shuffled": Loop(functools.partial(passes, shuffled)),
    "batched": Loop(functools.partial(passes, batched)),
    "padded": Loop(functools.partial(passes, padded), "transformer"),
    "augmented": Loop(functools.partial(passes, augmented)),
    "two_losses": Loop(functools.partial(passes, mapped), make_step=two_losses),
    "clipped": Loop(functools.partial(passes, mapped), make_step=clipped),
    "left_early": Loop(left_early),
    "one_and_another": Loop(one_and_another),
    "resumed": Loop(functools.partial(passes, shuffled), saved=SAVED),
}
FITS = {
    "fit_pipeline": Loop(functools.partial(passes, shuffled)),
    "fit_class_weight": Loop(functools.partial(passes, shuffled), options={"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}),
    "fit_sample_weight": Loop(functools.partial(passes, weighted)),
    "fit_padded": Loop(functools.partial(passes, padded), "transformer"),
    "fit_repeated": Loop(functools.partial(passes, shuffled), repeated=True),
}


@dataclass
class Used:
    """What a loop has used and found."""

    seen: list[Any] = field(default_factory=list)  # (pass through the data, number)
    losses: list[Any] = field(default_factory=list)
    sizes: list[Any] = field(default_factory=list)

    def note(self, job):
        """As on_step of a job."""
        self.losses.append(job.last_loss)
        self.sizes.append(job.batch_sizes)

    def use(self, turn, numbers):
        self.seen += [(turn, int(number)) for number in numbers]

    def check(self, job, model, alone, reference):
        """Parameters and logged losses of one process; each sample that it used was used once, by one worker."""
        far = models.difference(model, reference)
        assert far <= TOLERANCE, far
        np.testing.assert_allclose(self.losses, alone.losses, rtol=TOLERANCE, atol=TOLERANCE)
        used = sorted(tuple(use) for mine in job.gather(self.seen) for use in mine)
        assert used == sorted(alone.seen) and len(set(used)) == len(used), used
        return far


def train_alone(loop):
    model, _ = models.make(loop.model)
    train = tf.function(loop.make_step(model, models.momentum()), reduce_retracing=True)
    alone = Used()
    for turn, (dataset, most) in enumerate(loop.plan()):
        for number, x, y in itertools.islice(dataset.batch(parity.BATCH), most):
            alone.use(turn, number)
            alone.losses.append(float(train(x, y)))
        if most is None and loop.plan is not one_and_another:
            assert sorted(number for when, number in alone.seen if when == turn) == list(range(models.SAMPLES))
    return model, alone


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


def train_as_planned(job, loop, train, used, until=None):
    """From where the job is on, or as far as a step."""
    for turn, (dataset, most) in list(enumerate(loop.plan()))[job.epoch :]:
        for done, (number, x, y) in enumerate(job.dataset(dataset), 1):
            used.use(turn, number)
            slow_down(job, len(x))
            train(x, y)
            if job.step_number == until:
                return
            if done == most:
                break
        assert most is not None or job.ledger.complete
        if most is not None:
            job.end_epoch()


def run_loop(loop, folder):
    """A loop of one's own, on one worker or two."""
    used = Used()
    for part in range(1 if loop.saved is None else 2):
        job = make_job(on_step=used.note)
        model, _ = models.make(loop.model, seed=3 + job.rank + 9 * part)
        optimizer = models.momentum()
        job.prepare(model, optimizer)
        if part == 1:
            job.restore(folder / "loop")
        train_as_planned(job, loop, job.step(loop.make_step(model, optimizer)), used, loop.saved if part == 0 else None)
        if loop.saved is not None and part == 0:
            job.save(folder / "loop")
            job.barrier()
            job.close()
    reference, alone = train_alone(loop)
    far = used.check(job, model, alone, reference)
    job.close()
    return far, used.sizes


def own_pipelines(folder):
    """map, shuffle with a seed, batch and unbatch, ragged samples that are padded, augmentation; two losses, clipping;
    loops that are left, resumed, or go on with other data."""
    assert {*LOOPS, *FITS} == {*loop_table.ROWS}
    with double_precision():
        far = max(check_split(functools.partial(run_loop, loop, folder)) for loop in LOOPS.values())
    return f"off by {far:.2g}"


def fit_alone(loop, steps):
    model, _ = models.make(loop.model)
    model.compile(optimizer=models.momentum(), loss=models.loss_function())
    alone = Used()
    batches = ((turn, batch) for turn, (dataset, _) in enumerate(loop.plan()) for batch in dataset.batch(parity.BATCH))
    for turn, (number, *batch) in itertools.islice(batches, steps):
        model.reset_metrics()
        alone.use(turn, number)
        alone.losses.append(float(model.train_on_batch(*batch, return_dict=True, **loop.options)["loss"]))
    return model, alone


def run_fit(loop):
    used = Used()
    job = make_job(on_step=used.note)
    model, _ = models.make(loop.model, seed=3 + job.rank)

    def slowed(number, x):
        used.use(job.epoch, number)
        slow_down(job, len(x))
        return x

    def slow(number, x, *rest):
        return tf.ensure_shape(tf.py_function(slowed, [number, x], x.dtype), x.shape), *rest

    job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
    dataset = job.dataset(loop.plan()[0][0]).map(slow)
    steps = job.steps_per_epoch
    if loop.repeated:
        model.fit(dataset.repeat(), epochs=4, steps_per_epoch=steps // 2, verbose=0)
        steps = 4 * (steps // 2)
    else:
        model.fit(dataset, epochs=EPOCHS, verbose=0, **loop.options)
        assert job.ledger.complete
        steps *= EPOCHS
    reference, alone = fit_alone(loop, steps)
    first = sorted(number for turn, number in alone.seen if turn == 0)
    assert first == list(range(models.SAMPLES)) and len(alone.losses) == steps == len(used.losses), (first, steps)
    far = used.check(job, model, alone, reference)
    job.close()
    return far, used.sizes


def fit_pipeline(folder):
    """The same in Keras' fit(), also with weights of classes and samples, and with steps_per_epoch."""
    with double_precision():
        far = max(check_split(functools.partial(run_fit, loop)) for loop in FITS.values())
    return f"off by {far:.2g}"


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
    own_pipelines, fit_pipeline, pipeline_mistakes, stream_source)}  # fmt: skip
