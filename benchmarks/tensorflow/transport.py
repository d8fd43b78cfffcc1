#!/usr/bin/env python3
"""One worker of a comparison: asynchronous jobs over TensorFlow's own servers and over sockets, in turns.

    build/isochron launch -n 2 -- .venv-tf/bin/python benchmarks/tensorflow/transport.py --width 1024

A layer more or less does not matter: what is computed is next to nothing, so that an iteration is its exchange. The
first worker prints milliseconds an iteration by turns.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import keras
import numpy as np
import tensorflow as tf

import isochron.tensorflow as isochron

BATCH = 8  # of a worker


def iteration_seconds(transport, width, iterations):
    """And how many bytes of parameters there are."""
    workers = int(os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or 1)
    job = isochron.Job(global_batch=BATCH * workers, sync="asp", policy="uniform", transport=transport)
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(width), keras.layers.Dense(width)])
    optimizer = keras.optimizers.SGD(1e-6)
    job.prepare(model, optimizer)

    @job.step
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    samples = np.ones((BATCH * workers * iterations, width), np.float32)
    for _ in job.epochs(2):  # the first one compiles
        start, mine = time.perf_counter(), 0
        for (x,) in job.dataset((samples,)):
            train(x)
            mine += 1
    seconds = (time.perf_counter() - start) / mine
    first = job.is_first
    job.close()
    return seconds, 4 * model.count_params(), first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024, help="of two dense layers")
    parser.add_argument("--iterations", type=int, default=40, help="of a worker in a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    options = parser.parse_args()
    for _ in range(options.rounds):
        for transport in ("tensorflow", "sockets"):
            seconds, size, first = iteration_seconds(transport, options.width, options.iterations)
            if first:
                print(f"{transport:>10}: {1e3 * seconds:6.1f} ms an iteration, {size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
