"""Loops that leave an epoch early, change their data or use a log again, as people write them with TensorFlow."""

import json
import time

import models
import numpy as np
import parity
import tensorflow as tf
from out_of_step import check_ledger
from running import make_job, make_train, raises

from isochron import _core

PARTS = ((0, 120), (120, 250))  # of the samples: the second dataset is another one, and larger


def part(number):
    first, last = PARTS[number]
    return tuple(array[first:last] for array in models.images())


def prepared(**options):
    job = make_job(min_batch=0, **options)
    model, _ = models.make("mlp", seed=3 + job.rank)
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    return job, model, make_train(job, model, optimizer)


def one_pass(job, train, dataset, steps=None):
    """With other shares at every step; as far as `steps`."""
    parity.bind(job)
    for done, (x, y) in enumerate(dataset, 1):
        train(x, y)
        parity.bind(job)
        if done == steps:
            break


def train_alone(passes):
    """What one process makes of passes over the parts: number, epoch, first step, and the one behind the last."""
    model, _ = models.make("mlp")
    optimizer = models.momentum()
    train = tf.function(parity.training_step(model, optimizer), reduce_retracing=True)
    for number, epoch, first, last in passes:
        samples = part(number)
        sampler = _core.Sampler(len(samples[0]), parity.BATCH)
        for step in range(first, last):
            sampler.seek(epoch, step * parity.BATCH)
            chosen = sampler.samples(sampler.position, sampler.position + sampler.step_size)
            train(*(tf.constant(array[chosen]) for array in samples))
    return model


def check_same(model, reference):
    far = models.difference(model, reference)
    assert far <= parity.TOLERANCE, far
    return f"off by {far:.2g}"


def early_exit(folder):
    """A loop that is left goes on in the same epoch, unless its end was said; the ledger tells such epochs apart."""
    log = folder / "early.jsonl"
    job, model, train = prepared(log=log)
    dataset, epochs = job.dataset(part(0)), []
    for epoch in job.epochs(3):
        epochs.append(epoch)
        one_pass(job, train, dataset, steps=2)
        next(iter(dataset))  # a batch that is not used
        job.end_epoch()
        job.end_epoch()  # nothing is left to end
    assert epochs == [0, 1, 2] and job.step_number == 6, (epochs, job.step_number)
    one_pass(job, train, dataset, steps=2)
    one_pass(job, train, dataset)
    assert job.epoch == 4 and job.ledger.complete, job
    job.close()
    if job.is_first:
        events = [line for line in map(json.loads, log.read_text().splitlines()) if line["type"] == "event"]
        assert [event["event"] for event in events] == ["epoch-end"] * 3, events
        check_ledger(log)
    return check_same(model, train_alone([(0, 0, 0, 2), (0, 1, 0, 2), (0, 2, 0, 2), (0, 3, 0, 5)]))


def log_again(folder):
    """A second run with the same log sets the first one's aside; one that cannot be written is refused at once."""
    log = folder / "again.jsonl"
    for _ in range(2):
        job, _, train = prepared(log=log)
        one_pass(job, train, job.dataset(part(0)))
        assert repr(job).startswith(f"<Job: worker {job.rank} of {job.size}, step 5, epoch 1, batches ["), job
        job.barrier()
        job.close()
    if job.is_first:
        for path in (log, folder / "again.1.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert [line["step"] for line in lines if line["type"] == "step"] == list(range(5)), path
            check_ledger(path)
    words = "permitted: a file that the first worker can write (No such file or directory)"
    raises(ValueError, words, lambda: make_job(log=folder / "none" / "run.jsonl"))


def two_datasets(folder):
    """Pre-training, fine-tuning and back, each with a place, a ledger and a log of its own; then a job that goes on, to
    which one dataset is given before it is restored and the other one after."""
    log, checkpoint = folder / "data.jsonl", folder / "data"
    job, _, train = prepared(log=log)
    before = job.dataset(part(0))
    one_pass(job, train, before)
    after = job.dataset(part(1))
    assert job.epoch == 0, job
    one_pass(job, train, after, steps=2)
    one_pass(job, train, before, steps=3)
    assert (job.epoch, job.ledger.used) == (1, 3 * parity.BATCH), job
    raises(RuntimeError, "permitted: one dataset after the other", lambda: next(zip(before, after, strict=False)))
    job.save(checkpoint)
    job.barrier()
    job.close()
    job, model, train = prepared(log=log)
    before = job.dataset(part(0))
    job.restore(checkpoint)
    after = job.dataset(part(1))
    assert (job.epoch, job.ledger.used) == (0, 2 * parity.BATCH), job
    one_pass(job, train, after)
    assert job.epoch == 1 and job.ledger.complete, job
    one_pass(job, train, before)
    assert job.epoch == 2 and job.ledger.complete, job
    job.barrier()
    job.close()
    if job.is_first:
        check_ledger(log)
        check_ledger(folder / "data-2.jsonl")
    passes = [(0, 0, 0, 5), (1, 0, 0, 2), (0, 1, 0, 3), (1, 0, 2, 6), (0, 1, 3, 5)]
    return check_same(model, train_alone(passes))


def fine_tuning(folder):
    """fit() on one dataset and then on another one."""
    job = make_job(min_batch=0, log=folder / "tuned.jsonl")
    model, _ = models.make("mlp", seed=3 + job.rank)
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
    for number, epochs in ((0, 2), (1, 1)):
        dataset = job.dataset(part(number))
        model.fit(dataset, epochs=epochs, verbose=0, callbacks=[parity.Bind(job)])
        assert job.epoch == epochs and job.ledger.complete, job
    job.barrier()
    job.close()
    if job.is_first:
        check_ledger(folder / "tuned.jsonl")
        check_ledger(folder / "tuned-2.jsonl")
    return check_same(model, train_alone([(0, 0, 0, 5), (0, 1, 0, 5), (1, 0, 0, 6)]))


class Squares:
    """Samples by their numbers; `noisy`: others whenever they are asked for."""

    def __init__(self, first, noisy=False):
        self._first, self._noisy = first, noisy

    def __len__(self):
        return 120

    def __getitem__(self, number):
        noise = np.random.default_rng().random() if self._noisy else 0.0
        return np.float32((self._first + number) ** 2 + noise)


def other_data(folder):
    """Other data of the same type and size is found out by its ends; the same data in another object goes on."""
    x, y = (array[:120] for array in models.images())
    other = tuple(array[120:240] for array in models.images())

    def stream(arrays):
        return tf.data.Dataset.from_tensor_slices(arrays)

    words = "name= for one of them if they are different data, or the same name= for both if they are the same"
    at_ends = f"with 120 samples, whose first or last one differs from that of the one before; permitted: {words}"
    make_job(min_batch=0).close()  # before anything else of TensorFlow's
    for first, second, why in (
        ((x, y), other, f"dataset() got another tuple {at_ends}"),
        (Squares(0), Squares(1), f"dataset() got another Squares {at_ends}"),
        (stream((x, y)), stream(other), f", which begins with other samples than the one before; permitted: {words}"),
        ((x, y), (x.copy(), y.copy()), None),
        (Squares(0), Squares(0), None),
        (Squares(0, noisy=True), Squares(1, noisy=True), None),
        (stream((x, y)), stream((x, y)), None),
        (stream((x, y)).shuffle(99, seed=1), stream((x, y)).shuffle(99, seed=2), None),
    ):
        job = make_job(min_batch=0)
        job.dataset(first)
        if why is None:
            job.dataset(second)
            assert len(job._datasets) == 1, second
        else:
            raises(ValueError, why, lambda job=job, second=second: job.dataset(second))
            job.dataset(second, name="other")
            assert len(job._datasets) == 2, second
        job.close()


def other_options(folder):
    """The same samples with other lengths or in other batches are dealt and collated as was said last, also within an
    epoch of a pipeline."""
    job = make_job(min_batch=0, global_batch=16)
    samples = {"x": tf.ragged.constant([[1.0] * (1 + number % 5) for number in range(64)])}
    assert isinstance(next(iter(job.dataset(samples, lengths="x")))["x"], tf.Tensor)
    assert isinstance(next(iter(job.dataset(samples, lengths="x", collate="packed")))["x"], tf.RaggedTensor)
    assert list(job._source.lengths[:6]) == [1, 2, 3, 4, 5, 1]
    job.dataset(samples, lengths=np.ones(64), collate="packed")
    assert list(job._source.lengths[:6]) == [1] * 6
    job.close()
    job = make_job(min_batch=0, global_batch=16)
    shuffled = tf.data.Dataset.range(64).shuffle(64, seed=3)
    first = next(iter(job.dataset(shuffled, lengths=float)))
    again = next(iter(job.dataset(shuffled, lengths=lambda sample: 1.0)))
    both = [sorted(value for one in job._collectives.gather(batch.numpy().tolist()) for value in one)
            for batch in (first, again)]  # fmt: skip
    assert both[0] == both[1], both
    job.close()


def farewell(folder):
    """Who closes first waits for the others, whose last collective may still ask it for something."""
    job = make_job(global_batch=16)
    job.barrier()
    began = time.monotonic()
    if job.rank == 1:
        time.sleep(1.0)
    job.close()
    assert time.monotonic() - began > 0.9


CASES = {
    case.__name__: case
    for case in (early_exit, log_again, two_datasets, fine_tuning, other_data, other_options, farewell)
}
