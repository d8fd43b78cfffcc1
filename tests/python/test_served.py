"""The parameter server of isochron.served without any framework: workers are threads, arithmetic is NumPy's."""

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import isochron
from isochron._core import Coordinator, IterationReport, Ledger, Worker, lay_out
from isochron.options import SharedOptions
from isochron.served import wire
from isochron.served.alarm import Alarm
from isochron.served.coordination import Coordination
from isochron.served.course import Course, Place, Together
from ranks import ENVIRONMENT


def test_it_brings_no_framework_along():
    words = "import sys, isochron.served.course; print([m for m in ('torch', 'tensorflow') if m in sys.modules])"
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


def test_frames_carry_messages_and_numbers():
    ends = socket.create_server(("127.0.0.1", 0))
    with ends, socket.create_connection(ends.getsockname()) as link:
        client = wire.Connection(link, wire.Seat(0, "here", "", 0), 10.0)
        server = wire.Connection(ends.accept()[0], wire.Seat(1, "there", "", 0), 10.0)
        numbers = np.arange(5, dtype=np.float64).view(np.uint8)
        client.send(wire.Kind.PUSH, b"header", [numbers[:24], numbers[24:]])
        assert server.receive(patient=True) == (wire.Kind.PUSH, b"header")
        into = np.zeros(40, np.uint8)
        server.receive_into([into[:8], into[8:]])
        assert into.view(np.float64).tolist() == [0, 1, 2, 3, 4]
        client.close()
        with pytest.raises(isochron.PeerLostError, match="lost rank 1 on there") as lost:
            server.receive(patient=True)
        assert lost.value.ranks == (1,) and lost.value.hosts == ("there",)
        server.close()


class Asking:
    """Of a coordinator of two workers, as those at ranks 0 and 1."""

    def __init__(self, timeout, global_batch, **options):
        seats = [wire.Seat(rank, f"host-{rank}", "", 0) for rank in range(2)]
        coordinator = Coordinator([Worker(0), Worker(1)], global_batch, **options)
        self.coordination = Coordination(coordinator, seats, Alarm(timeout))
        self._reports = [0, 0]

    def ask(self, rank, **fields):
        report = IterationReport()
        report.sequence = self._reports[rank]
        self._reports[rank] += 1
        for name, value in fields.items():
            setattr(report, name, value)
        return self.coordination.ask(rank, report, lambda: None)


def test_who_keeps_the_coordinator_waiting_is_named():
    asking = Asking(0.1, 6, bound=0, policy="uniform")
    asking.coordination.open(0, 6, 0)
    order = asking.ask(0)
    assert (order.first, order.last) == (0, 3)
    with pytest.raises(isochron.TimeoutError, match="for rank 1 on host-1"):  # rank 0 must not begin another round
        asking.ask(0, finished=True, batch=3, seconds=1.0)


def test_who_leaves_in_the_middle_of_an_epoch_is_named():
    asking = Asking(60.0, 6, bound=None)
    asking.coordination.open(0, 3, 0)
    assert asking.ask(0).last == 3
    asking.coordination.leave(1)
    with pytest.raises(isochron.PeerLostError, match="rank 1 on host-1 closed the job in the middle of an epoch"):
        asking.ask(0, finished=True, batch=3, seconds=1.0)


@pytest.mark.parametrize("warm", [True, False])
def test_a_time_in_which_something_was_compiled_does_not_count(warm):
    asking = Asking(60.0, 12, bound=None)
    asking.coordination.open(0, 1000, 0)
    for rank in (0, 1):
        assert asking.ask(rank).decision.batch_sizes == [6, 6]
    asking.ask(0, finished=True, batch=6, seconds=9.0, warm=warm)
    split = asking.ask(1, finished=True, batch=6, seconds=1.0, warm=warm).decision.batch_sizes
    assert split[0] < split[1] if warm else split == [6, 6]


class Descent:
    """Plain gradient descent."""

    def __init__(self, values):
        self.values = values.copy()
        self.sum = np.zeros_like(values)
        self.size = values.nbytes

    def read(self, into):
        into[:] = self.values.view(np.uint8)

    def add(self, gradient, weight):
        self.sum += weight * gradient.view(np.float64)

    def take_mean(self, weight):
        mean, self.sum = self.sum / weight, np.zeros_like(self.sum)
        return mean.view(np.uint8)

    def step(self, gradient, settings, factor):
        self.values -= settings["lr"] * factor * gradient.view(np.float64)


class Threads:
    """Of one job; what they say all at once goes over a list."""

    def __init__(self, size):
        self.said = [None] * size
        self.barrier = threading.Barrier(size)

    def together(self, rank):
        def gather(value):
            self.said[rank] = value
            self.barrier.wait(60)
            heard = [dict(say) if isinstance(say, dict) else say for say in self.said]
            self.barrier.wait(60)
            return heard

        return Together(gather, lambda values: [sum(column) for column in zip(*gather(values), strict=True)])


class Options(SharedOptions):
    FRAMEWORK = "torch"
    EXTRAS = {}


def travel(threads, rank, size, options, epochs):
    """A worker's loop: a gradient of 1 for every sample's update."""
    layout = lay_out([[("f8", 8, 10)]], size)
    place = Place(0, 0, 20, Ledger(20), 0)
    updaters = [Descent(np.zeros(chunk.last - chunk.first)) for chunk in layout.chunks_on(rank)]
    workers = [Worker(id) for id in range(size)]
    course = Course(rank, workers, options, threads.together(rank), layout, updaters, place, b"")
    mine = 0
    while place.epoch < epochs:
        course.enter()
        while not (order := course.next_order(0)).barrier:
            course.start_pull()
            course.finish_pull()
            course.computed(1.0, 1.0, 0.0)
            course.gradients[0].view(np.float64)[:] = 1.0
            course.push([{"lr": 1.0}], order.batch)
            course.finish()
            mine += 1
        course.come_together()
    course.close()
    return mine, course.values[0].view(np.float64).tolist(), place.ledger.complete


@pytest.mark.parametrize(("sync", "staleness"), [("asp", None), ("ssp", 0)])
def test_workers_travel_from_barrier_to_barrier(sync, staleness):
    options = Options(global_batch=6, sync=sync, staleness=staleness, policy="uniform")
    options.validate()
    threads = Threads(3)
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(travel, threads, rank, 3, options, 2) for rank in range(3)]
        results = [run.result(120) for run in runs]
    # Updates one by one; in rounds: 20 samples by 6 are 4 rounds, in two epochs.
    updates = sum(mine for mine, _, _ in results) if sync == "asp" else 8
    for _, values, complete in results:
        assert values == [-updates] * 10 and complete
