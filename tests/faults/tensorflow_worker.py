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
        elif self.fault == "error":
            raise KeyError("my own mistake")
        elif self.fault == "disk":
            raise OSError(28, "No space left on device")

    def factor_in(self, phase):
        """Of what is computed in the phase."""
        self(phase)
        return float("nan") if self.fault == "nan" and self.phase == phase else 1.0


def tried(sync, phase, strike, timeout, folder):
    """What became of the job here: its kind of end, and what it holds."""
    import isochron.tensorflow as isochron

    try:
        return train(isochron, sync, phase, strike, timeout, folder)
    except isochron.NonFiniteError as error:
        return {"end": "numbers", "words": str(error)}
    except isochron.PeerError as error:
        return {"end": "named", "words": str(error), "ranks": list(error.ranks)}
    except Exception as error:
        if strike.done and strike.fault == "error":  # a script ends with its error, and its connections with it
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


def struck_while_it_writes(strike):
    write = tf.train.Checkpoint.write

    def struck(*arguments):
        strike("checkpoint")
        return write(*arguments)

    tf.train.Checkpoint.write = struck


def ask_before_the_optimizer(before):
    """When the gradients have been added up, and before a variable has changed."""
    apply = keras.optimizers.SGD.apply

    def struck(self, gradients, variables=None):
        with tf.control_dependencies([tf.py_function(before, [], [])]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        apply(self, gradients, variables)

    keras.optimizers.SGD.apply = struck


def train(isochron, sync, phase, strike, timeout, folder):
    strike("start")
    struck_before_it_registers(strike)
    if strike.fault == "disk":
        struck_while_it_writes(strike)
    job = isochron.Job(global_batch=BATCH, sync=sync, timeout=timeout)
    keras.utils.set_random_seed(3)
    generator = np.random.default_rng(1)
    samples = generator.normal(size=(STEPS * BATCH, 6)).astype("float32"), generator.integers(0, 3, STEPS * BATCH)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])
    count, when = 0, WHEN[sync]

    def before_the_optimizer():
        # Out of step it is that of this worker's share, whoever's gradient it takes, in a thread where no script runs.
        if count == when if sync == "bsp" else strike.fault != "error":
            strike("optimizer")

    ask_before_the_optimizer(before_the_optimizer)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    job.prepare(model, optimizer)

    def factor_in(phase):
        def factor():
            return strike.factor_in(phase) if count == when else 1.0

        number = tf.py_function(factor, [], tf.float32)
        number.set_shape([])
        return number

    @job.step
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) * factor_in("step")
        gradients = tape.gradient(loss, model.trainable_variables)
        with tf.control_dependencies(gradients):
            factor = factor_in("reduction")
        optimizer.apply([gradient * factor for gradient in gradients], model.trainable_variables)
        return loss

    for x, y in job.dataset(samples):
        step(x, y)
        if sync != "bsp" and count == when and strike.fault == "error":
            strike("optimizer")  # while the gradient is on its way to the optimizers
        if sync == "bsp" and count == when and phase == "checkpoint":
            if strike.fault != "disk":
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
        self.victim = 0 if fault.endswith("-first") or fault == "disk" else 1
        self.loses_it = fault not in ("nan", "disk", "none")
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
        if left and ((self.loses_it and left == {self.victim}) or time.monotonic() > self.deadline):
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
        return {"cell": self.cell, "victim": self.victim, "struck": struck.exists(), "answers": answers,
                "seconds": max(ended) - began}  # fmt: skip


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
