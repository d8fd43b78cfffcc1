"""Asynchronous training: what is promised of it in docs/async.md and docs/tensorflow.md."""

import collections
import json
import math
import os
import signal
import subprocess
import time
from functools import partial

import keras
import models
import numpy as np
import parity
import tensorflow as tf
from running import make_job, make_train, raises

import isochron.tensorflow as isochron

EPOCHS = 2


def scheduled_momentum():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 30), momentum=0.9, nesterov=True)


def adam():
    return keras.optimizers.Adam(0.01, epsilon=1e-3)


def adamw():
    """Large enough a decay that one of the excluded biases would show."""
    optimizer = keras.optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def train_epochs(model, optimizer, samples, job, until):
    train = make_train(job, model, optimizer)
    for _ in job.epochs(until):
        for x, y in job.dataset(samples):
            train(x, y)
    assert job.epoch == until and job.ledger.complete
    return until * job.steps_per_epoch


def reference(make_optimizer, steps):
    model, samples = models.make("mlp")
    train = tf.function(parity.training_step(model, make_optimizer()), reduce_retracing=True)
    for _, (x, y) in zip(range(steps), parity.reference_batches(samples), strict=False):
        train(tf.constant(x), tf.constant(y))
    return model


def bound_zero(folder):
    """Gives the result of one process; also if it is saved and goes on, in step or not."""
    worst = 0.0
    for make_optimizer, syncs in ((scheduled_momentum, ["ssp", "bsp"]), (adam, ["bsp", "ssp"]), (adamw, ["ssp"] * 2)):
        path = folder / make_optimizer.__name__
        for epoch, sync in enumerate(syncs):
            job = make_job(sync=sync, staleness=0 if sync == "ssp" else None)
            model, samples = models.make("mlp", seed=3 + 10 * epoch + job.rank)  # the first one's variables count
            optimizer = make_optimizer()
            job.prepare(model, optimizer)
            if epoch > 0:
                job.restore(path)
            steps = train_epochs(model, optimizer, samples, job, epoch + 1)
            job.save(path)
            job.close()
        far = models.difference(model, reference(make_optimizer, steps))
        went = models.difference(model, models.make("mlp")[0])
        assert far <= parity.TOLERANCE and went > 0.05, (make_optimizer.__name__, far, went)
        worst = max(worst, far)
    return f"off by {worst:.2g}"


def updates_of(path):
    return [line for line in map(json.loads, path.read_text().splitlines()) if line["type"] == "step"]


def check_ledger(path):
    program = os.environ.get("ISOCHRON_PROGRAM")
    if program:
        done = subprocess.run([program, "ledger", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return "" if program else "without the program, which checks the log"


AHEAD = 15  # updates of the others while the last worker computes its first: more news than a first message holds


def every_sample(folder, transport="tensorflow"):
    """Nobody waits for anybody; every sample is used once in every epoch, and no update is lost: each moves all
    parameters by exactly -1, since the loss is their sum."""
    log = folder / f"{transport}.jsonl"
    job = make_job(sync="asp", transport=transport, log=log, on_step=lambda job: mine.append(job.last_loss))
    mine = []
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(),
                              keras.layers.Dense(3, kernel_initializer="zeros")])  # fmt: skip
    optimizer = keras.optimizers.SGD(1.0)
    job.prepare(model, optimizer)
    assert job.strategy.num_replicas_in_sync == 1

    @job.step
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = 0.0 * tf.reduce_sum(model(x)) + tf.add_n([tf.reduce_sum(v.value) for v in model.trainable_variables])
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    seen = np.zeros((EPOCHS, models.SAMPLES))
    holds, ahead = folder / f"{transport}.holds", folder / f"{transport}.ahead"
    for epoch in job.epochs(EPOCHS):
        numbers = np.arange(models.SAMPLES)
        for x, number in job.dataset((models.images()[0], numbers)):
            seen[epoch][number.numpy()] += 1
            if job.rank == job.size - 1 and not mine:
                holds.touch()
                wait_for(ahead)
            if job.rank == 0 and not mine:
                wait_for(holds)
            train(x, number)
            if job.rank == 0 and len(mine) == AHEAD:
                ahead.touch()
    assert (np.asarray(job.sum(seen.reshape(-1))) == 1).all()
    updates = int(job.sum([len(mine)])[0])
    for values in model.get_weights():
        assert (values == -updates).all(), (values, updates)
    assert all(loss == loss for loss in mine)
    job.close()
    if job.rank != 0:
        return ""
    lines = updates_of(log)
    assert [line["step"] for line in lines] == list(range(updates))
    assert max(line["staleness"] for line in lines) >= AHEAD
    return check_ledger(log)


def every_sample_over_sockets(folder):
    return every_sample(folder, "sockets")


def wait_for(path):
    deadline = time.monotonic() + parity.TIMEOUT
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.002)


def bounded(folder):
    """Nobody is further ahead than the bound, though the last worker is slow; and a job that was stopped in the middle
    of an epoch goes on. BatchNormalization uses a worker's own samples, and its statistics meet."""
    bound, log = 1, folder / "ssp.jsonl"
    stopped = 0
    for go_on in (False, True):
        job = make_job(sync="ssp", staleness=bound, log=log, push_rate="batch-linear+staleness",
                       momentum_correction=True)  # fmt: skip
        model, samples = models.make("cnn")
        optimizer = models.momentum()
        job.prepare(model, optimizer)
        if go_on:
            job.restore(folder / "stopped")
        train = make_train(job, model, optimizer)
        for _ in job.epochs(EPOCHS):
            for x, y in job.dataset(samples):
                time.sleep(0.02 if job.rank == job.size - 1 else 0)
                if job.rank == 0:
                    raises(isochron.Error, "sum() in the middle of an epoch", partial(job.sum, [0.0]))
                assert math.isfinite(float(train(x, y)))
                if not go_on and job.rank == 0 and job.step_number >= 4:
                    job.stop()
        told = [[float(values.sum()) for values in model.get_weights()], job.ledger.used]
        assert len({str(one) for one in job.gather(told)}) == 1
        assert job.stopping != go_on
        if not go_on:
            stopped = job.ledger.used
            assert 0 < stopped < models.SAMPLES
            job.save(folder / "stopped")
        job.close()
    return check_bound(log, bound, stopped) if job.rank == 0 else ""


def check_bound(log, bound, stopped):
    clocks, total = collections.Counter({0: 0, 1: 0}), 0
    for update in updates_of(log):
        if total == stopped:
            clocks = collections.Counter({0: 0, 1: 0})  # another job
        clocks[update["workers"][0]] += 1
        total += sum(update["batch_sizes"])
        # Who starts an iteration is at most `bound` ahead, so who finished it at most one more.
        assert max(clocks.values()) - min(clocks.values()) <= bound + 1, (update, clocks)
    assert total == EPOCHS * models.SAMPLES
    return check_ledger(log)


def refusals(folder):
    """What is not possible is refused, and the error says what is."""
    raises(ValueError, "min_batch is 0 with sync 'asp'; permitted: 1", lambda: make_job(sync="asp", min_batch=0))
    raises(ValueError, "staleness is 1 with sync 'asp'; permitted", lambda: make_job(sync="asp", staleness=1))
    raises(ValueError, "transport is 'mail'; permitted: tensorflow, s", lambda: make_job(sync="asp", transport="mail"))
    raises(ValueError, "'sockets' with sync 'bsp'; permitted: with", lambda: make_job(transport="sockets"))
    job = make_job(sync="asp", momentum_correction=True)
    model, samples = models.make("mlp")
    for optimizer, words in (
        (keras.optimizers.Lamb(), "the optimizer is Lamb with sync 'asp'; permitted: SGD, Adam"),
        (keras.optimizers.SGD(global_clipnorm=1.0), "global_clipnorm is 1.0 with sync 'asp'; permitted: with sync"),
        (keras.optimizers.SGD(gradient_accumulation_steps=2), "gradient_accumulation_steps is 2 with sync 'asp'"),
        (adam(), "momentum_correction is True with Adam; permitted: with SGD"),
    ):
        raises(ValueError, words, lambda optimizer=optimizer: job.prepare(model, optimizer))
    raises(ValueError, "permitted: with sync 'bsp', or a loop of your own", lambda: job.compile(model, loss="mse"))
    raises(ValueError, "set_bounds() with sync 'asp'; permitted: with sync 'bsp'", lambda: job.set_bounds([(1, 2)]))
    optimizer = models.momentum()
    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    job.prepare(unbuilt, optimizer)
    raises(ValueError, "the model has no variables yet", lambda: next(iter(job.dataset(samples))))
    job.close()
    job = make_job(sync="asp")
    constrained = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, kernel_constraint="non_neg")])
    job.prepare(constrained, optimizer)
    raises(ValueError, "has a constraint with sync 'asp'; permitted", lambda: next(iter(job.dataset(samples))))
    job.close()


def not_finite(folder):
    """A gradient that is not finite is left out, or ends the job on all workers, and all say whose it was."""
    for numbers in ("skip", "stop"):
        job = make_job(sync="asp", on_nonfinite=numbers)
        model, (x, y) = models.make("mlp")
        optimizer = models.momentum()
        job.prepare(model, optimizer)
        bad = np.where(job.rank == job.size - 1, np.inf, x).astype("float32")
        run = partial(train_until, job, make_train(job, model, optimizer), (bad, y))
        if numbers == "stop":
            raises(isochron.NonFiniteError, f"-{job.size - 1} (rank {job.size - 1}", run)
        else:
            run()
            assert all(np.isfinite(values).all() for values in model.get_weights())


def train_until(job, train, samples):
    """The last worker has had some."""
    with job:
        mine = had = 0
        while had == 0:
            for x, y in job.dataset(samples):
                train(x, y)
                mine += 1
            had = job.sum([mine * (job.rank == job.size - 1)])[0]


def part(folder, victim, how, **options):
    """That worker goes, in its third iteration; the others say which. It ends this process's part in any job, so it is
    a case by itself."""
    job = make_job(sync="asp", **options)
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    started = time.monotonic()
    done = 0
    try:
        with job:
            for _ in job.epochs(1_000_000):
                for x, y in job.dataset(samples):
                    if done == 2 and job.rank == victim:
                        how(folder, job.rank)
                    train(x, y)
                    done += 1
        raise AssertionError("nobody was missed")
    except isochron.PeerLostError as error:
        assert error.ranks == (victim,), error
        assert f"{victim} on " in str(error), error
    except ZeroDivisionError:
        assert job.rank == victim
    assert time.monotonic() - started < job.options.timeout


def die(folder, rank, case="async_lost", by=signal.SIGKILL):
    (folder / f"{case}.{rank}").write_text("passed")
    (folder / "gone").write_text(str(os.getpid()))
    os.kill(os.getpid(), by)


def async_lost(folder):
    part(folder, 2, die)


def async_lost_coordinator(folder):
    """The first one, which deals the samples."""
    part(folder, 0, partial(die, case="async_lost_coordinator"))


def async_lost_sockets(folder):
    part(folder, 2, partial(die, case="async_lost_sockets"), transport="sockets")


def async_left(folder):
    """By an error of its own."""

    def divide_by_zero(*place):
        raise ZeroDivisionError

    part(folder, 2, divide_by_zero)


def async_stopped(folder):
    """It stands still: noticed by its heartbeat, long before the time-out."""
    part(folder, 2, partial(die, case="async_stopped", by=signal.SIGSTOP), timeout=80.0)
    os.kill(int((folder / "gone").read_text()), signal.SIGKILL)


CASES = {
    case.__name__: case
    for case in (bound_zero, every_sample, every_sample_over_sockets, bounded, refusals, not_finite, async_lost,
                 async_lost_coordinator, async_lost_sockets, async_left, async_stopped)
}  # fmt: skip
