#!/usr/bin/env python3
"""A TensorFlow worker of breakdown.py: stock MultiWorkerMirroredStrategy and a job with equal shares, in turns."""

import argparse
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import keras
import tensorflow as tf
from phases import Phases, Turns

import isochron.tensorflow as isochron
from isochron.tensorflow import job as job_module
from isochron.tensorflow import peers, step

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tensorflow"))
from compare import losses, make_model, make_samples


def watch(phases):
    """Says which functions of the package are which phase."""
    for phase, (owner, names) in {
        "compute": (step.Step, ["compute"]),
        "exchange": (step.Step, ["exchange"]),
        "optimizer": (step.Step, ["apply"]),
        "trace": (step.Step, ["trace", "is_new"]),
        "report": (job_module.Job, ["_report"]),
        "snapshot": (job_module.Job, ["_snapshot"]),
        "peers": (peers.Peers, ["note"]),
    }.items():
        for name in names:
            phases.wrap(owner, name, phase)


def stock(strategy, size, rank, batch, width, samples, phases):
    with strategy.scope():
        model = make_model(width)
        optimizer = keras.optimizers.SGD(0.01)
    share = batch // size

    @tf.function(reduce_retracing=True)
    def train(x, y):
        def in_replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(losses(y, model(x, training=True)), global_batch_size=batch)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(in_replica, args=(x, y)), axis=None)

    number = 0
    while True:
        with phases.phase("loader"):
            first = (number * batch + rank * share) % (len(samples[0]) - share)
            x, y = samples[0][first : first + share], samples[1][first : first + share]
        with phases.phase("compute"):
            float(train(x, y))
        number += 1
        yield


def ours(batch, policy, width, samples, phases):
    job = isochron.Job(global_batch=batch, policy=policy, timeout=120)
    model, optimizer = job.prepare(make_model(width), keras.optimizers.SGD(0.01))

    @job.step
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses(y, model(x, training=True)))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    while True:
        for x, y in phases.over(iter(job.dataset(samples)), "loader"):
            with phases.phase("protocol"):
                train(x, y)
            yield


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256, help="of all workers together")
    parser.add_argument("--turns", type=int, default=6, help="of each, after the first, which does not count")
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    parser.add_argument("--width", type=int, default=16, help="of the network")
    parser.add_argument("--policy", default="uniform")
    parser.add_argument("--python-profile", action="store_true", help="print what cProfile finds, too")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    phases, turns = Phases(), Turns()
    watch(phases)
    start = isochron.Job(global_batch=options.batch, timeout=120)
    samples = make_samples()
    loops = {
        "stock": stock(start.strategy, start.size, start.rank, options.batch, options.width, samples, phases),
        "isochron": ours(options.batch, options.policy, options.width, samples, phases),
    }
    for turn in range(options.turns + 1):
        for name in sorted(loops, reverse=turn % 2 == 1):
            start.barrier()
            turns.run(name, phases, lambda name=name: next(loops[name]), options.steps)
    results = start.gather(turns.results)
    if start.rank == 0:
        options.json.write_text(json.dumps({"workers": results}) + "\n")
    if options.python_profile:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        profile.enable()
        for _ in range(options.steps):
            next(loops["isochron"])
        profile.disable()
        if start.rank == 0:
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
