#!/usr/bin/env python3
"""One worker of a comparison: stock tf.distribute with equal shares against jobs of several policies, in turns.

    build/isochron launch --cluster hl8 -- .venv-tf/bin/python benchmarks/tensorflow/compare.py
    build/isochron launch -n 2 -- .venv-tf/bin/python benchmarks/tensorflow/compare.py --batch 128 --policies uniform

`plain` is MultiWorkerMirroredStrategy as its guide shows it: a model in its scope and strategy.run() on a step. The
ideal is the sum of what the workers compute by themselves, all at once, without exchanging anything. The first worker
prints a table; --json FILE writes the figures. Equal workers show the overhead, unequal ones what is gained.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # a second one only burns the quota of an emulated worker

import keras
import numpy as np
import tensorflow as tf

import isochron.tensorflow as isochron


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256, help="global batch")
    parser.add_argument("--policies", default="uniform,isochron", help="of the jobs")
    parser.add_argument("--steps", type=int, default=20, help="in a turn, after those that are not counted")
    parser.add_argument("--skip", type=int, default=6, help="steps at the start of a turn that are not counted")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--width", type=int, default=16, help="of the network")
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


def make_model(width):
    keras.utils.set_random_seed(1)
    return keras.Sequential([
        keras.Input((28, 28, 1)), keras.layers.Conv2D(width, 3, activation="relu"),
        keras.layers.Conv2D(2 * width, 3, activation="relu"), keras.layers.MaxPooling2D(), keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])  # fmt: skip


def make_samples():
    generator = np.random.default_rng(0)
    return generator.random((4096, 28, 28, 1), np.float32), generator.integers(0, 10, 4096)


def losses(y, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)


def solo(options, size, samples):
    """Samples a second of this worker alone."""
    model = make_model(options.width)
    share = max(1, options.batch // size)
    x, y = tf.constant(samples[0][:share]), tf.constant(samples[1][:share])

    @tf.function
    def compute():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses(y, model(x, training=True)))
        return tape.gradient(loss, model.trainable_variables)

    compute()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 6:
        compute()
        count += 1
    return share * count / (time.perf_counter() - start)


def plain_turn(options, strategy, size, rank, samples):
    """Seconds of each step that counts."""
    with strategy.scope():
        model = make_model(options.width)
        optimizer = keras.optimizers.SGD(0.01)
    share = options.batch // size

    @tf.function(reduce_retracing=True)
    def step(x, y):
        def in_replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(losses(y, model(x, training=True)), global_batch_size=options.batch)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(in_replica, args=(x, y)), axis=None)

    moments = []
    for number in range(options.skip + options.steps + 1):
        moments.append(time.perf_counter())
        first = (number * options.batch + rank * share) % (len(samples[0]) - share)
        float(step(samples[0][first : first + share], samples[1][first : first + share]))
    return np.diff(moments)[options.skip :].tolist()


def job_turn(options, policy, samples):
    job = isochron.Job(global_batch=options.batch, policy=policy, timeout=120)
    model, optimizer = job.prepare(make_model(options.width), keras.optimizers.SGD(0.01))

    @job.step
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses(y, model(x, training=True)))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    moments, last = [], options.skip + options.steps + 1
    while len(moments) < last:
        for x, y in job.dataset(samples):
            moments.append(time.perf_counter())
            step(x, y)
            if len(moments) == last:
                break
    sizes = job.batch_sizes
    job.close()
    return np.diff(moments)[options.skip :].tolist(), sizes


def main():
    options = parse()
    samples = make_samples()
    start = isochron.Job(global_batch=options.batch, timeout=120)
    ideal = start.sum([solo(options, start.size, samples)])[0]
    turns = {"plain": [], **{policy: [] for policy in options.policies.split(",")}}
    sizes = {}
    for _ in range(options.rounds):
        for name, seconds in turns.items():
            start.barrier()
            if name == "plain":
                seconds.append(plain_turn(options, start.strategy, start.size, start.rank, samples))
            else:
                turn, sizes[name] = job_turn(options, name, samples)
                seconds.append(turn)
    results = []
    for name, seconds in turns.items():
        rates = [options.batch * len(turn) / sum(turn) for turn in seconds]
        plain = [statistics.median(turn) for turn in turns["plain"]]
        ratios = [statistics.median(turn) / base for turn, base in zip(seconds, plain, strict=True)]
        results.append({
            "policy": name, "samples_per_second": statistics.median(rates),
            "step_seconds": statistics.median(time for turn in seconds for time in turn),
            "share_of_solo": statistics.median(rates) / ideal, "time_over_plain": statistics.median(ratios),
            "time_over_plain_by_round": ratios, "batch_sizes": sizes.get(name)})  # fmt: skip
    if start.is_first:
        print(f"ideal {ideal:.0f} samples/s")
        for result in results:
            print(
                "{policy:>10}: {samples_per_second:7.1f} samples/s, step {step_seconds:.4f} s, of solo "
                "{share_of_solo:.3f}, time over plain {time_over_plain:.3f}, batches {batch_sizes}".format(**result)
            )
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"command": "benchmarks/tensorflow/compare.py", "ideal": ideal, "results": results}, file)


if __name__ == "__main__":
    main()
