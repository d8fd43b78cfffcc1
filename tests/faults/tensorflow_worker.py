#!/usr/bin/env python3
"""Cells of the fault matrix with TensorFlow: tensorflow_worker.py SYNC:PHASE:FAULT:TIMEOUT... runs each as a job of
real processes, some at a time, and prints what became of their ranks and how long that took, a line of JSON a cell.

Importing TensorFlow takes seconds, so it is done once; the ranks are forked from there, before TensorFlow has started
any thread of its own. Exit code 77: TensorFlow is not installed.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", OMP_NUM_THREADS="1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
from ports import free_ports  # noqa: E402

try:
    import keras
    import numpy as np
    import tensorflow as tf
except ImportError:
    sys.exit(77)

SIZE, STEPS, BATCH, WHEN = 3, 6, 24, {"bsp": 2, "asp": 0, "ssp": 0}  # out of step a worker may get one batch only
AT_ONCE = 2
LIMIT = 300.0  # seconds of a job that hangs, on a machine that is busy


class Striker:
    """Does the fault once, when the phase is reached in the worker that it is meant for."""

    def __init__(self, phase, fault, folder):
        self.phase, self.fault, self.folder, self.done = phase, fault, folder, False

    def __call__(self, phase):
        if phase != self.phase or self.done:
            return
        self.done = True
        (self.folder / "struck").write_text(str(time.monotonic()))
        if self.fault in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if self.fault == "kill" else signal.SIGSTOP)
        elif self.fault == "exit":
            os._exit(0)
        raise KeyError("my own mistake")


def tried(sync, phase, strike, timeout, folder):
    """What became of the job here: its kind of end, and what it holds."""
    import isochron.tensorflow as isochron

    try:
        return train(isochron, sync, phase, strike, timeout, folder)
    except isochron.PeerError as error:
        return {"end": "named", "words": str(error), "ranks": list(error.ranks)}
    except Exception as error:
        if strike.done:  # a script ends with its error, and its connections with it
            os._exit(1)
        return {"end": "error", "words": f"{type(error).__name__}: {error}"}


def struck_before_it_registers(strike):
    """The workers have met, and TensorFlow does not know of them yet."""
    from isochron.tensorflow import coordination

    configure = coordination.configure

    def struck(*arguments):
        strike("rendezvous")
        configure(*arguments)

    coordination.configure = struck


def train(isochron, sync, phase, strike, timeout, folder):
    strike("start")
    struck_before_it_registers(strike)
    job = isochron.Job(global_batch=BATCH, sync=sync, timeout=timeout)
    keras.utils.set_random_seed(3)
    generator = np.random.default_rng(1)
    samples = generator.normal(size=(STEPS * BATCH, 6)).astype("float32"), generator.integers(0, 3, STEPS * BATCH)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    job.prepare(model, optimizer)
    count, when = 0, WHEN[sync]

    def before_the_exchange():
        if count == when:
            strike("reduction")

    @job.step
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        with tf.control_dependencies([tf.py_function(before_the_exchange, [], [])]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    for x, y in job.dataset(samples):
        if count == when:
            strike("step")
        step(x, y)
        if count == when:
            strike("optimizer")
        if sync == "bsp" and count == when and phase == "checkpoint":
            strike("checkpoint")
            job.save(str(folder / "saved"))
        if sync == "bsp" and count == when and phase == "evaluation":
            strike("evaluation")
            job.sum([1.0])
        if count == when and phase == "leave":
            job.stop()
            strike("leave")
        count += 1
    if sync != "bsp" and phase in ("checkpoint", "evaluation"):
        strike(phase)
        job.save(str(folder / "saved")) if phase == "checkpoint" else job.sum([1.0])
    values = np.concatenate([weight.flatten() for weight in model.get_weights()]).astype("float64").tolist()
    result = {"end": "on", "complete": job.ledger.complete, "values": values}
    strike("end")
    job.close()
    return result


class Job:
    """The ranks of one cell."""

    def __init__(self, cell, scratch):
        self.cell = cell
        sync, phase, fault, timeout = cell.split(":")
        self.victim = 0 if fault.endswith("-first") else 1
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.began = time.monotonic()
        self.deadline = self.began + LIMIT
        port = free_ports(1)[0] - 1  # they meet at the one after MASTER_PORT
        self.ranks = {}
        for rank in range(SIZE):
            child = os.fork()
            if child == 0:
                self._be_rank(rank, port, sync, phase, fault.removesuffix("-first"), float(timeout))
            self.ranks[child] = rank

    def _be_rank(self, rank, port, sync, phase, fault, timeout):
        words = {"end": "trace", "words": ""}
        try:
            log = os.open(self.folder / f"log.{rank}", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(SIZE), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(SIZE),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))  # fmt: skip
            strike = Striker(phase if rank == self.victim and fault != "none" else None, fault, self.folder)
            words = tried(sync, phase, strike, timeout, self.folder)
        except BaseException as error:
            words["words"] = repr(error)
        finally:
            words["moment"] = time.monotonic()
            (self.folder / f"{rank}.part").write_text(json.dumps(words))
            os.replace(self.folder / f"{rank}.part", self.folder / str(rank))
            os._exit(0)

    def is_over(self):
        for child in list(self.ranks):
            if os.waitpid(child, os.WNOHANG)[0] == child:
                del self.ranks[child]
        left = set(self.ranks.values())
        if left and (left == {self.victim} or time.monotonic() > self.deadline):
            with contextlib.suppress(ChildProcessError):
                for child in self.ranks:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
            left = set()
        return not left

    def result(self):
        files = [self.folder / str(rank) for rank in range(SIZE)]
        answers = [json.loads(file.read_text()) if file.exists() else None for file in files]
        struck = self.folder / "struck"
        began = float(struck.read_text()) if struck.exists() else self.began
        ended = [answer["moment"] for answer in answers if answer] or [time.monotonic()]
        return {"cell": self.cell, "victim": self.victim, "answers": answers, "seconds": max(ended) - began}


def main(waiting):
    with tempfile.TemporaryDirectory() as scratch:
        running = []
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(Job(waiting.pop(0), scratch))
            time.sleep(0.05)
            for job in [job for job in running if job.is_over()]:
                running.remove(job)
                print(json.dumps(job.result()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
