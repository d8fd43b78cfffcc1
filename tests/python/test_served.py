"""Asynchronous training without any framework: workers are threads, arithmetic is NumPy's."""

import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import isochron
from isochron._core import Replica, Worker, cpu_seconds, lay_out, process_usage
from isochron.options import SharedOptions
from isochron.served.session import Owner, Session
from isochron.served.sockets import Sockets
from ranks import ENVIRONMENT


def test_it_brings_no_framework_along():
    words = "import sys, isochron.served.session; print([m for m in ('torch', 'tensorflow') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_shares_are_equal_and_cover_everything():
    layout = lay_out([[("f8", 8, 10), ("f4", 4, 7), ("f8", 8, 1)], [("f8", 8, 3)]], 3)
    strips = [(strip.group, strip.type, strip.elements) for strip in layout.strips]
    assert strips == [(0, "f8", 11), (0, "f4", 7), (1, "f8", 3)]
    slots = [(slot.strip, slot.first, slot.last) for slot in layout.slots]
    assert slots == [(0, 0, 10), (1, 0, 7), (0, 10, 11), (2, 0, 3)]
    # 140 bytes, cut at 46 and 93.
    chunks = [(chunk.server, chunk.strip, chunk.first, chunk.last) for chunk in layout.chunks]
    assert chunks == [(0, 0, 0, 5), (1, 0, 5, 11), (1, 1, 0, 1), (2, 1, 1, 7), (2, 2, 0, 3)]
    assert [layout.server_bytes(shard) for shard in range(3)] == [40, 52, 48]


class Descent:
    """Plain gradient descent."""

    def __init__(self, values):
        self.values = values.copy()
        self.sum = np.zeros_like(values)
        self.size = values.nbytes

    def read(self, into):
        into[:] = self.values.view(np.uint8)

    def add(self, gradient, weight, first):
        self.sum = weight * gradient.view(np.float64) + (0 if first else self.sum)

    def take_mean(self, weight):
        return (self.sum / weight).view(np.uint8)

    def step(self, gradient, settings, factor):
        self.values -= settings["lr"] * factor * gradient.view(np.float64)


class Threads:
    """The threads of one job; what they say all at once goes over a list."""

    def __init__(self, size):
        self.said = [None] * size
        self.barrier = threading.Barrier(size)

    def gather(self, rank):
        def gather(value):
            self.said[rank] = value
            self.barrier.wait(60)
            heard = [dict(say) if isinstance(say, dict) else say for say in self.said]
            self.barrier.wait(60)
            return heard

        return gather


class Options(SharedOptions):
    FRAMEWORK = "torch"
    EXTRAS = {}


def replica_of(size, options, rank=0, samples=20, cpu=True):
    replica = Replica(options.settings, [Worker(id, name=f"worker-{id}") for id in range(size)], rank, cpu=cpu)
    replica.open(samples)
    return replica


def set_out(threads, rank, size, options, updaters=None, samples=20, cpu=True):
    layout = lay_out([[("f8", 8, 10)]], size)
    gather = threads.gather(rank)
    owner = Owner(gather, lambda samples: None, lambda record: None, restore_chunk=None)
    if updaters is None:
        updaters = [Descent(np.zeros(chunk.last - chunk.first)) for chunk in layout.chunks_on(rank)]
    link = Sockets(rank, gather, None, options.timeout).connect()
    return Session(owner, replica_of(size, options, rank, samples, cpu), options, link, layout, updaters, 0)


def iterate(session, order, gradient=1.0, pause=0.0):
    session.start_pull()
    session.finish_pull()
    time.sleep(pause)
    session.computed(1.0, process_usage(cpu_seconds(), 1.0))
    session.gradients[0].view(np.float64)[:] = gradient
    session.send([{"lr": 1.0}], order.batch)
    session.finish()


def travel(threads, rank, size, options, epochs):
    """A worker's loop: a gradient of 1 for every sample's update."""
    session = set_out(threads, rank, size, options)
    mine = 0
    while session.epoch < epochs:
        session.enter()
        while not (order := session.next(0)).barrier:
            iterate(session, order)
            mine += 1
        session.reach_barrier()
    complete = session.ledger.complete
    session.close(orderly=True)
    return mine, session.values[0].view(np.float64).tolist(), complete


def options_of(**given):
    options = Options(global_batch=6, policy="uniform", **given)
    options.validate()
    return options


def run_threads(size, work):
    threads = Threads(size)
    with ThreadPoolExecutor(size) as pool:
        return [run.result(120) for run in [pool.submit(work, threads, rank) for rank in range(size)]]


@pytest.mark.parametrize(("sync", "staleness"), [("asp", None), ("ssp", 0)])
def test_workers_travel_from_barrier_to_barrier(sync, staleness):
    options = options_of(sync=sync, staleness=staleness)
    results = run_threads(3, lambda threads, rank: travel(threads, rank, 3, options, 2))
    # Updates one by one; in rounds: 20 samples by 6 are 4 rounds, in two epochs.
    updates = sum(mine for mine, _, _ in results) if sync == "asp" else 8
    for _, values, complete in results:
        assert values == [-updates] * 10 and complete


@pytest.mark.parametrize("cpu", [True, False])
def test_the_first_batch_of_a_size_tells_nothing_of_a_gpus_speed(cpu):
    options = Options(global_batch=60, policy="isochron", sync="ssp", staleness=0)

    def work(threads, rank):
        session, batches = set_out(threads, rank, 2, options, samples=120, cpu=cpu), []
        session.enter()
        while not (order := session.next(0)).barrier:
            batches.append(order.batch)
            iterate(session, order, pause=0.2 if rank == 1 else 0.02)
        session.reach_barrier()
        session.close(orderly=True)
        return batches

    fast, slow = run_threads(2, work)
    assert fast[0] == slow[0] == 30 and sum(fast + slow) == 120
    assert (fast[1] > slow[1]) == cpu, (fast, slow)


def words_of(kind, call):
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


def test_who_keeps_the_coordinator_waiting_is_named():
    options, told = options_of(sync="ssp", staleness=0, timeout=2.0), threading.Event()

    def work(threads, rank):
        session = set_out(threads, rank, 2, options)
        session.enter()
        if rank == 1:  # which never asks
            return words_of(isochron.TimeoutError, lambda: told.wait(60) and session.next(0))
        order = session.next(0)
        assert (order.first, order.last) == (0, 3)
        iterate(session, order)
        words = words_of(isochron.TimeoutError, lambda: session.next(0))  # it must not begin another round
        told.set()
        return words

    for words in run_threads(2, work):
        assert "for rank 1 on" in words


def test_who_leaves_in_the_middle_of_an_epoch_is_named():
    options = options_of(sync="ssp", staleness=0, timeout=60.0)

    def work(threads, rank):
        session = set_out(threads, rank, 2, options)
        session.enter()
        if rank == 1:
            session.close(orderly=True)
            return "rank 1 on this host closed the job in the middle of an epoch"
        return words_of(isochron.PeerLostError, lambda: [iterate(session, session.next(0)) for _ in range(9)])

    for words in run_threads(2, work):
        assert re.search("rank 1 on.* closed the job in the middle of an epoch", words)


def test_an_error_in_the_arithmetic_ends_the_job_on_all_workers_with_its_words(caplog):
    class Broken(Descent):
        def step(self, gradient, settings, factor):
            raise ZeroDivisionError("no such step")

    def work(threads, rank):
        chunks = [Broken(np.zeros(5))]
        session = set_out(threads, rank, 2, options_of(sync="asp"), chunks)
        session.enter()
        return words_of(isochron.Error, lambda: [iterate(session, session.next(0)) for _ in range(9)])

    for words in run_threads(2, work):
        assert "ZeroDivisionError: no such step" in words
    assert "Traceback" in caplog.text


def test_a_signal_ends_a_wait():
    """Ctrl-C, while this worker waits for the others."""

    class Alarm(Exception):
        pass

    def ring(*arguments):
        raise Alarm

    threads, options, gone = Threads(2), options_of(sync="ssp", staleness=0, timeout=60.0), threading.Event()

    def other():
        session = set_out(threads, 1, 2, options)
        session.enter()
        gone.wait(60)
        return words_of(isochron.PeerLostError, lambda: session.next(0))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other)
        session = set_out(threads, 0, 2, options)
        session.enter()
        iterate(session, session.next(0))
        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Alarm):
                session.next(0)  # the other has not asked yet
        finally:
            signal.signal(signal.SIGALRM, before)
            gone.set()
        assert "lost rank 0" in waiting.result(60)
