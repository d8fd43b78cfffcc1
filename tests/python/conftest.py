"""Run logs to read: a small one by hand, and one that the program writes."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from ranks import Nursery, Ranks
from two_hosts import TwoHosts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import passed_before  # noqa: E402
from chances import make_chance  # noqa: E402

HEADER = {"type": "run", "schema": 1, "program": "train", "version": "0.1.0", "policy": "isochron", "cluster": "pair",
          "global_batch": 40, "seed": 7, "workers": [{"id": 0, "name": "fast", "kind": "cpu"},
                                                     {"id": 1, "name": "slow", "kind": "gpu"}]}  # fmt: skip


def step(number, batches, compute, **more):
    workers = list(range(len(batches)))
    zeros = [0.0] * len(batches)
    return {"type": "step", "step": number, "start": 2.0 * number, "seconds": max(compute), "workers": workers,
            "batch_sizes": batches, "starts": zeros, "compute_seconds": compute, "wait_seconds": zeros,
            "exchange_seconds": zeros, "learning_rate_factor": 1, "changed": False, "reason": "kept",
            **more}  # fmt: skip


# The tests with torch that `make test` has the time for; `make check` runs the others, too.
QUICK = (
    "test_torch_batch_norm_shares.py",
    "test_torch_loader.py",
    "test_torch_parity.py::test_uneven_equals_single_process[cnn-plain]",
    "test_torch_parity.py::test_uneven_equals_single_process[gpt2-ddp]",
    "test_torch_failures.py::test_survivors_of_a_killed_worker_go_on",
)


def pytest_configure(config):
    config.pluginmanager.register(passed_before)


def pytest_collection_modifyitems(items):
    for item in items:
        if any(name in item.nodeid for name in QUICK):
            item.add_marker("quick")


@pytest.fixture
def lines():
    return [
        dict(HEADER),
        step(0, [20, 20], [0.5, 2.0], loss=2.5, words="equal shares"),
        {"type": "event", "step": 1, "seconds": 2.0, "event": "join", "worker": 2, "words": "late"},
        step(1, [30, 5, 5], [0.75, 0.5, 0.5], loss=2.0),
        {"type": "evaluation", "step": 2, "seconds": 2.75, "loss": 1.9, "accuracy": 0.4},
    ]


@pytest.fixture
def write_log(tmp_path):
    def write(lines, tail="", name="run.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
        return path

    return write


@pytest.fixture(scope="session")
def program_log(tmp_path_factory):
    """The log of `isochron simulate`; skipped where the program is not told."""
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    path = pathlib.Path(tmp_path_factory.mktemp("run")) / "run.jsonl"
    command = [program, "simulate", "--cluster", "dynamic", "--policy", "isochron", "--steps", "40", "--log", path]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture
def chance():
    """Random numbers, others in every run."""
    return make_chance()


@pytest.fixture(scope="session")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def pair(nursery):
    """Two ranks with torch, for the whole session."""
    ranks = Ranks(nursery, 2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def alone(nursery):
    """A process without a group."""
    ranks = Ranks(nursery, 0)
    yield ranks
    ranks.close()


@pytest.fixture
def trio(nursery):
    """Three ranks for one test, which may do to them what it likes."""
    ranks = Ranks(nursery, 3)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield TwoHosts(tmp_path_factory.mktemp("hosts"), stack)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KiB; skipped where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
