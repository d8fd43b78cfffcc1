"""Every sample once, in batches of the size that was decided, whatever fetches them."""

import collections
import gc
import os
import signal
import subprocess
import sys
import time

import pytest


def check_epochs(results, size):
    for epoch in (0, 1):
        used = collections.Counter()
        for result in results:
            for at, _, decided, stand_in, numbers, _, names in result["rounds"]:
                if at == epoch and not stand_in:
                    assert len(numbers) == decided  # never a batch of an older size
                    assert names == [f"sample {number}" for number in numbers]
                    used.update(numbers)
        assert used == collections.Counter(range(size))
    assert all(result["complete"] for result in results)


def noises(results):
    """By step: samples and the sum of the random numbers that came with them, over all ranks."""
    steps = collections.defaultdict(lambda: [set(), 0.0])
    for result in results:
        for epoch, position, _, stand_in, numbers, noise, _ in result["rounds"]:
            if not stand_in:
                steps[epoch, position][0] |= set(numbers)
                steps[epoch, position][1] += noise
    return {step: (frozenset(numbers), pytest.approx(total)) for step, (numbers, total) in steps.items()}


def test_workers_processes_and_collate_functions_make_no_difference(pair):
    in_process = pair.run("loader_counts", num_workers=0)
    processes = pair.run("loader_counts", num_workers=2)
    custom = pair.run("loader_counts", num_workers=1, custom=True)
    for results in (in_process, processes, custom):
        check_epochs(results, 103)
        assert results[0]["length"] == 6  # ceil(103 / 20)
    sizes = {decided for _, _, decided, *_ in processes[0]["rounds"]}
    assert len(sizes) > 2  # the split changed, so something could have been stale
    # Augmentation depends on (seed, epoch, sample) alone, not on who fetched it or how the step was split.
    assert noises(in_process) == noises(processes) == noises(custom)


class Ended:
    """Says in which process it comes to its end, which the collector alone brings: it holds itself."""

    def __init__(self, file):
        self._file, self._itself = file, self

    def __del__(self):
        with open(self._file, "a") as file:
            file.write(f"{os.getpid()}\n")


class Collecting:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        gc.collect()
        return index


class Ending:
    """Its samples end the process that reads them, but for the one that made it."""

    def __init__(self):
        self.made_by = os.getpid()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if os.getpid() != self.made_by:
            os._exit(3)
        return index


def test_a_loader_process_that_ended_is_named_at_once():
    import torch

    import isochron.torch as isochron

    model = torch.nn.Linear(1, 1)
    with isochron.Job(global_batch=4, timeout=600.0) as job:
        job.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
        with pytest.raises(isochron.Error, match=r"loader process 0 \(process \d+\) ended with code 3"):
            next(iter(job.loader(Ending(), num_workers=1)))


class Endless:
    """Says that a sample is being read, which takes for ever."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.path.touch()
        time.sleep(3600)


def test_loader_processes_that_do_not_end_are_killed_when_a_loader_is_closed(tmp_path):
    """One reads a sample for ever, the other one is stopped."""
    from isochron.torch.pool import Fetcher, SamplePool

    pool = SamplePool(Fetcher(Endless(tmp_path / "reads"), None, 0), 2)
    reading, stopped = processes = list(pool._processes)
    os.kill(stopped.pid, signal.SIGSTOP)
    pool.request(0, [0])
    deadline = time.monotonic() + 60
    while not (tmp_path / "reads").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    pool.close()
    assert [process.exitcode for process in processes] == [-signal.SIGKILL] * 2
    assert not reading.is_alive()


def test_a_loader_process_leaves_what_its_parent_threw_away_alone(tmp_path):
    """The end of a process group would wait there for threads that only the parent has."""
    import torch

    import isochron.torch as isochron

    gc.disable()
    try:
        Ended(tmp_path / "ended")
        job = isochron.Job(global_batch=4)
        job.prepare(torch.nn.Linear(1, 1))
        assert len(next(iter(job.loader(Collecting(), num_workers=1)))) == 4
        assert not (tmp_path / "ended").exists()
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "ended").read_text() == f"{os.getpid()}\n"
    job.close()


EARLY = """
import gc, os, sys
os.register_at_fork(after_in_child=lambda: [[] for _ in range(100)])  # as threading, whose code runs there first
from isochron.torch import inherited
from test_torch_loader import Ended
gc.set_threshold(1)
gc.disable()
Ended(sys.argv[1])
fork, wait, leave = os.fork, os.waitpid, os._exit
gc.enable()
child = fork()
if child == 0:
    leave(0 if gc.isenabled() else 2)
assert wait(child, 0)[1] == 0 and gc.isenabled()
gc.collect()
print(os.getpid())
"""


def test_nothing_is_collected_while_a_process_forks(tmp_path):
    """Not even before what we do in the forked process has its turn."""
    command = [sys.executable, "-c", EARLY, str(tmp_path / "ended")]
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=where, capture_output=True, text=True, check=True)
    assert (tmp_path / "ended").read_text() == done.stdout


def test_streams_are_dealt_exactly(pair):
    (first, intervals), (second, _) = pair.run("stream_counts")
    # 50 samples in steps of 12 in the ratio 1 : 2, so 4 and 8; the last step has 2, of which 1.33 and .67 are 1 and 1.
    assert [len(batch) for batch in first] == [4, 4, 4, 4, 1] * 2
    assert sorted(sum(first[:5], []) + sum(second[:5], [])) == list(range(50))
    assert intervals == [(0, 50)]


def test_a_resume_on_another_number_of_workers_repeats_and_leaves_out_nothing(pair, trio):
    begun = trio.run("begin", steps=4)
    ended = pair.run("go_on", state=begun[0]["state"])
    used = collections.Counter()
    for result in (*begun, *ended):
        used.update(result["seen"])
    assert used == collections.Counter(range(95))
    assert all(result["complete"] and result["step"] == 4 for result in ended)
