"""The comparison with other software: what its logs are turned into, and that the page is made of its results."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks/peers"


@pytest.fixture
def elastic(monkeypatch):
    monkeypatch.syspath_prepend(PEERS)
    import elastic

    monkeypatch.setattr(elastic, "SAMPLES", 8)
    return elastic


def line(step, moment, ids, epoch=0):
    return {"step": step, "time": moment, "samples": len(ids), "ids": ids, "epoch": epoch}


def test_samples_that_nobody_used_and_those_used_twice_are_counted(elastic):
    # 5, 6 and 7 of 0 to 7 are missing, 1 was used three times. What another epoch used does not count.
    first = [line(0, 1.0, [0, 1]), line(1, 2.0, [1])]
    logs = [first, [line(0, 1.0, [2, 3, 4]), line(1, 2.0, [1]), line(2, 3.0, [5], epoch=1)]]
    assert elastic.used(logs, 0) == {"never_used": 3, "used_again": 2}


def test_a_pause_is_the_longest_gap_after_the_moment_less_a_usual_step(elastic):
    # Steps of 1 s, a gap of 4 s around second 3.5, before it one of 2 s that does not count.
    steps = [line(number, moment, [0]) for number, moment in enumerate([-1.0, 1.0, 2.0, 3.0, 7.0, 8.0])]
    assert elastic.gap(steps, 3.5) == (3.0, 7.0)


def test_the_batch_of_a_step_is_the_sum_over_workers(elastic):
    logs = [[line(0, 1.0, [0, 1]), line(1, 2.0, [2])], [line(0, 1.1, [3])]]
    assert elastic.by_step(logs) == {0: 3, 1: 1}
    assert elastic.rate(logs, 0.5, 1.5) == 3.0


def test_shares_are_means_over_whole_steps(monkeypatch):
    pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(PEERS)
    import speed

    # Step 0 begins before the time that counts; steps 1 and 2 have 2 and 4 samples of the first worker, 1 of the other.
    logs = [
        [line(0, 0.5, [0]), line(1, 2.0, [0, 1]), line(2, 3.0, [0, 1, 2, 3])],
        [line(0, 1.5, [0]), line(1, 2.1, [0]), line(2, 3.1, [0])],
    ]
    found = speed.of_second_half(logs, 1.0, 5.0)
    assert found["per_worker"] == [3.0, 1.0] and found["batch"] == 4.0
    assert found["samples_per_second"] == 9 / 4 and found["updates_per_second"] == 3 / 4


def test_results_of_one_peer_replace_its_own_older_ones_only(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(PEERS)
    import page

    path = tmp_path / "kill.json"
    page.save(path, "kill", [{"peer": "torchft", "variant": "a", "pause": 1}, {"peer": "isochron", "pause": 2}])
    page.save(path, "kill", page.merged(page.read(path), [{"peer": "torchft", "variant": "a", "pause": 3}]))
    assert page.read(path) == [{"peer": "isochron", "pause": 2}, {"peer": "torchft", "variant": "a", "pause": 3}]


def test_the_page_is_what_the_results_say():
    done = subprocess.run([sys.executable, PEERS / "page.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
