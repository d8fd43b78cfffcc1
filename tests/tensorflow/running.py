"""What a job does besides computing gradients: metrics, callbacks, checkpoints, rebalancing, failures."""

import math
import os
import re
import signal
import socket
import time
from functools import partial

import keras
import models
import numpy as np
import parity
import tensorflow as tf

import isochron as isochron_runs
import isochron.tensorflow as isochron
from isochron.tensorflow import saving

HOST = socket.gethostname().partition(".")[0]


def make_job(**options):
    return isochron.Job(**{"global_batch": parity.BATCH, "timeout": parity.TIMEOUT, **options})


def make_train(job, model, optimizer, **options):
    loss_function = models.loss_function()

    @job.step(**options)
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return train


def raises(kind, words, action):
    try:
        action()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no {kind.__name__} with '{words}'")


def callbacks(folder):
    """fit() with everything that users put into it, on metrics whose states are more than a mean."""
    job = make_job(log=folder / "fit.jsonl")
    model, (x, y) = models.make("cnn")
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function(), metrics=["accuracy"],
                weighted_metrics=[keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")])  # fmt: skip
    best = folder / "best.weights.h5"
    history = model.fit(
        job.dataset((x, y)).repeat(), epochs=5, steps_per_epoch=4, verbose=0,
        validation_data=job.evaluation_dataset((x, y), batch_size=32),
        callbacks=[job.callback(), keras.callbacks.ModelCheckpoint(best, save_weights_only=True),
                   keras.callbacks.EarlyStopping("val_loss", min_delta=100.0, patience=1),
                   keras.callbacks.TensorBoard(folder / "board"),
                   keras.callbacks.CSVLogger(folder / "log.csv")])  # fmt: skip
    job.barrier()
    logs = history.history
    assert len(logs["loss"]) == 2 and job.step_number == 8, (logs, job.step_number)  # stopped early, all alike
    assert (folder / "log.csv").read_text().count("\n") == 3  # the first worker alone has written
    assert len(list((folder / "board").glob("train/events.*"))) == 1
    plain = model.evaluate(x, y, batch_size=250, verbose=0, return_dict=True)  # everything, on every worker
    for name in ("loss", "accuracy", "top2"):
        assert abs(plain[name] - logs[f"val_{name}"][-1]) < 1e-5, (name, plain, logs)
    assert len({str(told) for told in job.gather(logs)}) == 1
    job.barrier()
    copy, _ = models.make("cnn", seed=9)
    copy.load_weights(best)
    assert models.difference(model, copy) == 0
    job.close()


def let_go(folder):
    """A model that fit() builds. All workers get the same variables but other masks of dropout; after close() it is
    Keras' own again."""
    job = make_job()
    samples = models.images()
    late, drop = models.Late(), keras.layers.Dropout(0.5)
    model = keras.Sequential([late, keras.layers.Flatten(), drop, keras.layers.Dense(3)])
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
    model.fit(job.dataset(samples), epochs=1, verbose=0)
    assert len(set(job.gather(int(drop.seed_generator.state.numpy()[1])))) == job.size
    assert len({str(told) for told in job.gather([float(weights.sum()) for weights in model.get_weights()])}) == 1
    assert "call" in vars(late.norm)
    job.close()
    assert "call" not in vars(late.norm) and "fit" not in vars(model) and "apply" not in vars(model.optimizer)
    if job.rank == 0:  # alone
        model.fit(*samples, batch_size=50, epochs=1, verbose=0)


def own_train_step(folder):
    """A model with a train_step of its own, unknown to the job."""

    class Scaled(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = 2 * self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"doubled": loss}

    job = make_job()
    inner, samples = models.make("mlp")
    model = Scaled(inner.inputs, inner.outputs)
    job.compile(model, optimizer=keras.optimizers.SGD(0.05), loss=models.loss_function())
    model.fit(job.dataset(samples), epochs=1, verbose=0)
    reference, _ = models.make("mlp")
    reference.compile(optimizer=keras.optimizers.SGD(0.1), loss=models.loss_function())
    for _, (x, y) in zip(range(job.step_number), parity.reference_batches(samples), strict=False):
        reference.train_on_batch(x, y)
    assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)
    job.close()


def rebalances(folder):
    """A worker that is slower by 40 ms a sample is measured, and soon has a smaller batch: after the first step that
    was measured, unless something else slowed the others down just then."""
    job = make_job(log=folder / "slow.jsonl")
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    at_first = job.batch_sizes[-1]
    while job.batch_sizes[-1] > at_first / 2 and job.step_number < 60:
        for x, y in job.dataset(samples):
            time.sleep(0.04 * len(x) if job.rank == job.size - 1 else 0)
            train(x, y)
            if job.batch_sizes[-1] <= at_first / 2:
                break
    assert job.batch_sizes[-1] <= at_first / 2, job.batch_sizes
    steps = job.step_number
    job.close()
    if job.rank == 0:
        for record in isochron_runs.read_run(folder / "slow.jsonl").step_records:
            batch, seconds = record["batch_sizes"][-1], record["compute_seconds"][-1]
            assert seconds >= 0.04 * batch, record
            assert record["seconds"] >= seconds / 2, record  # each worker has a clock of its own
    return f"rebalanced after step {steps - 1}"


def memory(folder):
    """The last worker cannot hold more than ten samples: its ceiling goes down, and nothing is lost."""
    job = make_job(log=folder / "memory.jsonl")
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    most = 10 if job.rank == job.size - 1 else parity.BATCH
    loss_function = models.loss_function()
    job.prepare(model, optimizer)

    @job.step
    def train(x, y):
        # Beyond what an address can reach, so that the allocator refuses on any machine (after trying for ten seconds).
        space = tf.random.uniform([tf.where(tf.shape(x, tf.int64)[0] > most, 1 << 46, 1)])
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True)) + 0.0 * space[0]
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    failed = 0
    while job.epoch < 2:
        for x, y in job.dataset(samples):
            failed += train(x, y) is None
    assert failed > 0 and job.ledger.complete
    assert job.batch_sizes[-1] <= most, job.batch_sizes
    reference, _ = models.make("mlp")
    reference.compile(optimizer=models.momentum(), loss=loss_function)
    for _, (x, y) in zip(range(job.step_number), parity.reference_batches(samples), strict=False):
        reference.train_on_batch(x, y)
    assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)
    job.close()


def memory_norms(folder):
    """With synchronised BatchNormalization a step cannot be redone: all end, and say because of whom. By itself."""
    job = make_job()
    model, samples = models.make("cnn")
    optimizer = models.momentum()
    loss_function = models.loss_function()
    most = 10 if job.rank == job.size - 1 else parity.BATCH
    job.prepare(model, optimizer)

    @job.step
    def train(x, y):
        space = tf.random.uniform([tf.where(tf.shape(x, tf.int64)[0] > most, 1 << 46, 1)])
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x + 0.0 * space[0], training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    batch = next(iter(job.dataset(samples)))
    last = job.rank == job.size - 1
    words = f"the memory of task {job.size - 1} did not hold 12 samples"
    before = model.get_weights()
    raises(isochron.Error if last else isochron.PeerError, words, lambda: train(*batch))
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))
    job.save(folder / "rescued")
    assert job.rank > 0 or (folder / "rescued.index").exists()


def memory_norms_fit(folder):
    """The same in fit(), which saves the job by itself. By itself."""
    job = make_job()
    model, samples = models.make("cnn")
    loss_function = models.loss_function()
    most = 10 if job.rank == job.size - 1 else parity.BATCH

    def greedy(y, predictions):
        space = tf.random.uniform([tf.where(tf.shape(y, tf.int64)[0] > most, 1 << 46, 1)])
        return loss_function(y, predictions) + 0.0 * space[0]

    job.compile(model, optimizer=models.momentum(), loss=greedy)
    callback = job.callback(backup=str(folder / "rescued_fit"))
    words = f"the memory of task {job.size - 1} did not hold 12 samples"
    fit = partial(model.fit, job.dataset(samples), callbacks=[callback], verbose=0)
    raises(isochron.Error if job.rank == job.size - 1 else isochron.PeerError, words, fit)
    assert job.rank > 0 or (folder / "rescued_fit.index").exists()


SAVED = 13  # in the middle of the second epoch


def trained_to(job, model, optimizer, samples, step):
    train = make_train(job, model, optimizer)
    while job.step_number < step:
        for x, y in job.dataset(samples):
            train(x, y)
            if job.step_number == step:
                return


def save(folder):
    job = make_job()
    model, samples = models.make("cnn")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    trained_to(job, model, optimizer, samples, SAVED)
    job.save(folder.parent / "checkpoint")
    job.close()


def resume(folder):
    """Goes on where save() left off, on another number of workers, as if nothing had been."""
    job = make_job(log=folder / f"resumed.{job_size()}.jsonl")
    model, samples = models.make("cnn", seed=99)
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    job.restore(folder.parent / "checkpoint")
    assert (job.step_number, job.epoch) == (SAVED, 1)
    assert len(job.batch_sizes) == job.size and sum(job.batch_sizes) == parity.BATCH
    trained_to(job, model, optimizer, samples, parity.STEPS)
    reference, _ = parity.reference_loop("cnn", models.momentum)
    assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)
    job.close()


def job_size():
    return os.environ.get("TF_CONFIG", "").count("127.0.0.1:") or 1


def backup(folder):
    """fit() that ends in the middle and begins again, by the callback alone."""
    where, log = folder / f"backup{job_size()}", folder / f"backup{job_size()}.jsonl"
    for epochs in (2, 4):
        job = make_job(log=log)
        model, samples = models.make("mlp", seed=3 if epochs == 2 else 99)
        job.compile(model, optimizer=models.momentum(), loss=models.loss_function())
        history = model.fit(job.dataset(samples), epochs=epochs, verbose=0, callbacks=[job.callback(backup=str(where))])
        assert history.epoch == list(range(epochs - 2, epochs)), history.epoch
        steps = job.step_number
        job.close()
    if job.rank == 0:  # one log of both
        run = isochron_runs.read_run(log)
        assert [record["step"] for record in run.step_records] == list(range(steps))
        assert [event["event"] for event in run.event_records] == ["resume"], run.event_records
    reference, _ = models.make("mlp")
    reference.compile(optimizer=models.momentum(), loss=models.loss_function())
    for _, (x, y) in zip(range(steps), parity.reference_batches(samples), strict=False):
        reference.train_on_batch(x, y)
    assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)


def optimizers(folder):
    """What happens inside the optimizer sees the gradient of the global batch."""
    clipped = {"global_clipnorm": 0.05}
    for make_optimizer in (
        lambda: keras.optimizers.SGD(0.1, **clipped),
        lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=3),
        lambda: keras.optimizers.AdamW(0.01, epsilon=1e-3),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1024.0),
    ):
        parity.check_loop("mlp", make_optimizer)


def mixed_precision(folder):
    """float16 with loss scaling: finite, and all workers have the same variables. A scale that is far too large goes
    down by itself and does not stop the job."""
    job = make_job()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model, samples = models.make("cnn")
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=2.0**24)
        job.compile(model, optimizer=optimizer, loss=models.loss_function())
        losses = model.fit(job.dataset(samples), epochs=4, verbose=0).history["loss"]
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert losses[-1] < losses[0] and math.isfinite(losses[-1]), losses
    assert float(optimizer.dynamic_scale) < 2.0**24, float(optimizer.dynamic_scale)
    sums = [float(np.sum(weights, dtype=np.float64)) for weights in model.get_weights()]
    assert len({str(told) for told in job.gather(sums)}) == 1
    job.close()


def compiled(folder):
    """XLA compiles once per shape, and the granularity keeps the shapes few."""
    job = make_job(granularity=4, min_batch=4, last_batch="drop")
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer, jit_compile=True)
    while job.step_number < 25:
        for x, y in job.dataset(samples):
            assert len(x) % 4 == 0, len(x)
            train(x, y)
            cut = 4 + 4 * (job.step_number % 4)
            job.set_bounds([(cut, cut), (parity.BATCH - cut, parity.BATCH - cut)] if job.size == 2 else [(24, 24)])
    assert job.compilations <= parity.BATCH // 4 and job.traces == 1, (job.compilations, job.traces)
    reference, _ = models.make("mlp")
    reference.compile(optimizer=models.momentum(), loss=models.loss_function())
    sampler = isochron.job._core.Sampler(models.SAMPLES, parity.BATCH, 0, "drop")
    for _ in range(job.step_number):
        numbers = sampler.samples(sampler.position, sampler.position + parity.BATCH)
        reference.train_on_batch(*(array[numbers] for array in samples))
        sampler.advance()
    assert models.difference(model, reference) <= parity.TOLERANCE, models.difference(model, reference)
    norm, _ = models.make("cnn")
    job.close()
    job = make_job()
    raises(ValueError, "jit_compile is True", lambda: job.compile(norm, loss="mse", jit_compile=True))
    job.close()


def sources(folder):
    """A tf.data.Dataset of samples and a map-style source give what arrays give."""
    x, y = models.images()

    class Items:
        def __len__(self):
            return len(x)

        def __getitem__(self, number):
            return x[number], y[number]

    def seen(samples):
        job = make_job()
        model, _ = models.make("mlp")
        optimizer = models.momentum()
        job.prepare(model, optimizer)
        train = make_train(job, model, optimizer)
        data, total = samples(), np.zeros(x.shape[1:])
        for epoch in job.epochs(2):
            for images, labels in job.dataset(data):
                total += images.numpy().sum(0) * (epoch + 1)
                train(images, labels)
        totals = job.gather(total.sum()), job.gather(float(total.std()))
        job.close()
        return totals

    # A job comes before anything else of TensorFlow's.
    for samples in (Items, lambda: tf.data.Dataset.from_tensor_slices((x, y)).prefetch(8)):
        sums, _ = seen(samples)
        assert abs(sum(sums) - 3 * x.sum(dtype=np.float64)) < 1e-1, (sums, x.sum())


def mistakes(folder):
    """Each is an error that says what is permitted."""
    raises(ValueError, "sync is 'half'; permitted: bsp, local, asp, ssp", lambda: make_job(sync="half"))
    raises(ValueError, "on_nonfinite is 'maybe'; permitted: stop", lambda: make_job(on_nonfinite="maybe"))
    raises(ValueError, "global_batch is 0; permitted", lambda: make_job(global_batch=0))
    if job_size() > 1:
        rank = int(os.environ["TF_CONFIG"].split('"index": ')[1].split("}")[0])
        raises(ValueError, "seed is 1 on rank 1; permitted: what rank 0 has, 0", lambda: make_job(seed=int(rank == 1)))
    job = make_job()
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    raises(RuntimeError, "call job.prepare", lambda: job.make_step(len))
    scaled = make_job(lr_rule="linear", reference_batch=1)
    schedule = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 30))
    words = "lr_rule is 'linear' with a schedule as learning rate; permitted: 'none', or a constant one"
    raises(ValueError, words, lambda: scaled.prepare(model, schedule))
    scaled.close()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    raises(RuntimeError, "outside of a step", lambda: optimizer.apply([], []))
    raises(RuntimeError, "without a batch", lambda: train(*samples))
    raises(ValueError, "a dataset of type int", lambda: job.dataset(3))
    raises(ValueError, "[3, 4] samples", lambda: job.dataset((np.zeros(3), np.zeros(4))))
    raises(ValueError, "size", lambda: job.dataset(tf.data.Dataset.range(3).repeat()))
    ahead = iter(job.dataset(samples).prefetch(4))

    def read_ahead():
        for _ in range(3):
            next(ahead)

    raises(tf.errors.OpError, "cannot be read ahead", read_ahead)
    model.compile(optimizer=models.momentum(), loss=models.loss_function())
    again = job.dataset(samples)
    raises(Exception, "for model.fit() call job.compile(model, ...)", lambda: model.fit(again, verbose=0))
    raises(ValueError, "steps_per_execution is 4; permitted", lambda: job.compile(model, steps_per_execution=4))
    job.close()
    optimizer.apply([tf.zeros(v.shape) for v in model.trainable_variables], model.trainable_variables)  # its own again


def check_same(before, model):
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def numbers(folder):
    """A gradient that is not finite stops all workers unless they are told otherwise. Model and statistics of
    BatchNormalization are as before, and the error names the worker, also where no loss shows whose gradient it is."""
    for name, everybody in (("mlp", False), ("cnn", True)):  # whose statistics spread it to all
        job = make_job()
        model, (x, y) = models.make(name)
        optimizer = models.momentum()
        job.prepare(model, optimizer)
        last = job.size - 1
        bad = np.full_like(x, np.inf) if everybody or job.rank == last else x
        batch = next(iter(job.dataset((bad, y))))
        before = model.get_weights()
        words = f"step 0: the gradient is not finite on {HOST}-{0 if everybody else last} (rank"
        raises(isochron.NonFiniteError, words, partial(make_train(job, model, optimizer), *batch))
        check_same(before, model)
        assert job.ledger.used == 0 and job.step_number == 0
        job.save(folder / f"stopped_{name}")  # goes on from before the step
        job.close()


def hidden_numbers(folder):
    """The loss is finite but the last worker's gradient is not: the step is computed once more to find out whose."""
    job = make_job(on_nonfinite="stop")
    model, samples = models.make("mlp")
    optimizer, loss_function, last = models.momentum(), models.loss_function(), job.size - 1
    job.prepare(model, optimizer)

    @job.step
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))
            if job.rank == last:
                loss += tf.sqrt(0.0 * tf.reduce_sum(model.trainable_variables[0]))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    batch = next(iter(job.dataset(samples)))
    before = model.get_weights()
    words = f"step 0: the gradient is not finite on {HOST}-{last} (rank {last}, loss 1."
    raises(isochron.NonFiniteError, words, lambda: train(*batch))
    check_same(before, model)
    job.close()


def skipped_numbers(folder):
    """A step with a sample that is no number is left out, and nothing of it is left: not in the model, its statistics
    or fit's metrics. The log says so."""
    log = folder / "skipped.jsonl"
    job = make_job(on_nonfinite="skip", log=log)
    model, (x, y) = models.make("cnn")
    x[7] = np.nan
    job.compile(model, optimizer=models.momentum(), loss=models.loss_function(), metrics=["accuracy"])
    history = model.fit(job.dataset((x, y)), epochs=2, verbose=0).history
    assert all(math.isfinite(value) for values in history.values() for value in values), history
    assert all(np.isfinite(values).all() for values in model.get_weights()) and job.ledger.complete
    per_epoch = -(-models.SAMPLES // parity.BATCH)
    assert int(model.optimizer.iterations) == 2 * per_epoch - 2 and job.step_number == 2 * per_epoch
    job.close()
    if job.rank == 0:
        run = isochron_runs.read_run(log)
        assert [event["event"] for event in run.event_records] == ["numbers"] * 2, run.event_records
        told = ["loss" in record for record in run.step_records]
        assert len(told) == 2 * per_epoch and told.count(False) == 2, told


class Seen:
    """What workers report while it is entered."""

    def __enter__(self):
        self._stock = isochron.job._core.read_reports
        self.reports = []
        isochron.job._core.read_reports = self._read
        return self

    def _read(self, numbers):
        self.reports.append(self._stock(numbers))
        return self.reports[-1]

    def __exit__(self, *error):
        isochron.job._core.read_reports = self._stock


def sync_points(folder):
    """How often workers wait for each other reaches the policy: at the end of a step, and in front of and behind every
    BatchNormalization."""
    for name, expected in (("mlp", 1), ("cnn", 5 if job_size() > 1 else 1)):
        job = make_job()
        model, samples = models.make(name)
        optimizer = models.momentum()
        job.prepare(model, optimizer)
        with Seen() as seen:
            trained_to(job, model, optimizer, samples, 3)
        known = re.search(r"meetings ([0-9a-f.p+]+)", job.books.state(*job.save_places()))
        assert known and float.fromhex(known[1]) == expected, known
        assert {one.sync_points for step in seen.reports for one in step} == {expected}
        assert all((one.waited > 0) == (expected > 1) for step in seen.reports for one in step)
        job.close()


def first_of_a_size(folder):
    """The time of a GPU's first step with a batch size says nothing of its speed."""
    stock = tf.config.list_physical_devices
    tf.config.list_physical_devices = lambda kind=None: ["a GPU"]
    try:
        job = make_job()
    finally:
        tf.config.list_physical_devices = stock
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    with Seen() as seen:
        for until, cut in ((3, 12), (6, 8)):
            job.set_bounds([(cut, cut), (parity.BATCH - cut, parity.BATCH - cut)])
            trained_to(job, model, optimizer, samples, until)
    assert [step[0].warm for step in seen.reports] == [False, True, True, False, True, True], seen.reports
    job.close()


def save_with_a_batch_out(folder):
    """It is the state before that batch's step, which can be made nevertheless, and gone back to."""
    job = make_job()
    model, samples = models.make("cnn")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    batch = next(iter(job.dataset(samples)))
    before = model.get_weights()
    job.save(folder / "out")
    train(*batch)
    assert job.step_number == 1 and job.ledger.used == parity.BATCH
    job.restore(folder / "out")
    assert job.step_number == 0 and job.ledger.used == 0
    if job.rank == 0:
        check_same(before, model)
    job.close()


def earlier_version(folder):
    """A checkpoint with another kind of state is refused by all, and the error says what can be done with it."""
    job = make_job()
    model, _ = models.make("mlp")
    job.prepare(model, models.momentum())
    if job.is_first:
        saving._checkpoint(job, saving._Text('{"rules": {}, "workers": []}')).write(str(folder / "earlier"))
    job.barrier()
    words = "the checkpoint is of an isochron before 0.1.0; permitted"
    raises(ValueError, words, lambda: job.restore(folder / "earlier"))
    job.close()


def lost(folder):
    """A worker is killed; the others say which. It ends this process's part in any job, so it is a case by itself."""
    job = make_job()
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    try:
        while True:
            for x, y in job.dataset(samples):
                if job.step_number == 4 and job.rank == job.size - 1:
                    (folder / f"lost.{job.rank}").write_text("passed")
                    os.kill(os.getpid(), signal.SIGKILL)
                train(x, y)
    except isochron.PeerError as error:
        assert error.ranks == (job.size - 1,), error
        assert f"task {job.size - 1} on " in str(error) and "step 4" in str(error), error


CASES = {
    case.__name__: case
    for case in (callbacks, let_go, own_train_step, rebalances, memory, memory_norms, memory_norms_fit, save, resume,
                 backup, optimizers, mixed_precision, compiled, sources, mistakes, numbers, hidden_numbers,
                 skipped_numbers, sync_points, first_of_a_size, save_with_a_batch_out, earlier_version, lost)
}  # fmt: skip
