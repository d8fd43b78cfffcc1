"""Asynchronous training on real processes: what is promised of it in docs/async.md and docs/pytorch.md."""

import collections
import json
import os
import socket
import subprocess

import pytest


def updates_of(path):
    return [line for line in map(json.loads, path.read_text().splitlines()) if line["type"] == "step"]


def check_ledger(path):
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    done = subprocess.run([program, "ledger", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_bound_zero_gives_the_result_of_one_process(pair, optimizer):
    for result in pair.run("bound_zero", optimizer=optimizer):
        assert result["far"] < 1e-10 and result["went"] > 0.01


def test_no_update_is_lost_and_fixed_gradients_add_up_exactly(trio, tmp_path):
    log = tmp_path / "run.jsonl"
    results = trio.run("fixed_gradients", folder=str(tmp_path), log=str(log))
    for result in results:
        assert result["least"] == result["most"] == -result["updates"]
    updates = updates_of(log)
    assert len(updates) == results[0]["updates"]
    # While the last one slept through its first iteration, the first did 5.
    assert max(update["staleness"] for update in updates) >= 5
    own = {}
    for update, rate in zip(updates, results[0]["rates"], strict=True):
        own[update["workers"][0]] = update["batch_sizes"][0] / update["seconds"]
        assert rate == pytest.approx(sum(own.values()))
    assert '"type":"event"' not in log.read_text()  # a second epoch is no resume
    check_ledger(log)


def test_nobody_is_further_ahead_than_the_bound_and_a_stopped_job_goes_on(pair, tmp_path):
    log, bound = tmp_path / "run.jsonl", 1
    first, second = pair.run("bounded", log=str(log), staleness=bound)
    assert first["sum"] == second["sum"]  # parameters and averaged statistics
    assert (first["own"], second["own"]) == (0, 1)
    assert 0 < first["stopped"] < 150
    assert first["complete"] and second["complete"]
    clocks = collections.Counter({0: 0, 1: 0})
    total = 0
    for update in updates_of(log):
        if total == first["stopped"]:
            clocks = collections.Counter({0: 0, 1: 0})  # another job
        clocks[update["workers"][0]] += 1
        total += sum(update["batch_sizes"])
        # Who starts an iteration is at most `bound` ahead, so who finished it at most one more.
        assert max(clocks.values()) - min(clocks.values()) <= bound + 1
    assert total == 2 * 150
    check_ledger(log)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_one_worker_does_what_a_plain_loop_does(alone, num_workers):
    (result,) = alone.run("as_people_write_it", num_workers=num_workers)
    assert result["far"] == 0.0
    assert result["scales"] == [512.0, 512.0]  # halved by the overflow


def test_a_loss_that_is_not_finite_ends_the_job_on_all_workers_unless_skipped_or_ignored(pair):
    for result in pair.run("not_finite_alone", options={}, spoil="loss"):
        assert result["kind"] == "NonFiniteError" and result["finite"], result
        assert "-1 (rank 1, loss inf)" in result["words"]
    for what, finite in (("skip", True), ("ignore", False)):
        expected = {"kind": "none", "finite": finite, "complete": True}
        options = {"on_nonfinite": what}
        assert pair.run("not_finite_alone", options=options, spoil="gradient") == [expected] * 2


def test_what_is_not_possible_is_refused_by_name(pair):
    for words in pair.run("refusals"):
        expected = [
            "the model is DistributedDataParallel with sync 'asp'; permitted: the plain model",
            "the optimizer is LBFGS with sync 'asp'; permitted: SGD, Adam",
            "accumulate(2) with sync 'asp'; permitted: with sync 'bsp'",
            "the dataset is iterable with sync 'asp'; permitted: one with __getitem__",
            "staleness is 1 with sync 'asp'; permitted: with sync 'ssp'",
            "push_rate is 'fast'; permitted: none, batch-linear",
            "push_rate is 'staleness' with sync 'bsp'; permitted: with sync 'asp' or 'ssp'",
            "momentum_correction is True with Adam; permitted: with SGD",
        ]
        for told, begins in zip(words, expected, strict=True):
            assert told.startswith(begins), told


def test_a_lost_worker_is_named_by_all_others(trio):
    trio.start("killed", timeout=60.0)
    for rank in (0, 1):
        told = trio.result(rank)
        assert told["kind"] == "PeerLostError", told
        assert told["ranks"] == (2,) and told["hosts"] == (socket.gethostname(),)
        assert f"rank 2 on {socket.gethostname()}" in told["words"]
        assert told["seconds"] < 60.0


@pytest.mark.parametrize(("victim", "where", "sync", "staleness"), [
    (2, "computed", "asp", None),
    (1, "pushed", "asp", None),
    (2, "barrier", "ssp", 1),
    (2, "computed", "ssp", 0),
    (1, "pushed", "ssp", 0),
])  # fmt: skip
def test_survivors_of_a_lost_worker_and_its_share_use_every_sample_once(trio, tmp_path, victim, where, sync, staleness):
    log = tmp_path / "run.jsonl"
    trio.start("survives", log=str(log), victim=victim, where=where, sync=sync, staleness=staleness)
    results = [trio.result(rank) for rank in range(3) if rank != victim]
    for result in results:
        assert result["used"] == [110, 110] and result["ends"] == [2.0, 2.0] and result["size"] == 2
        assert result["sum"] == results[0]["sum"]
        if staleness == 0 and where == "computed":  # the round was done again from the values that all had pulled
            assert result["far"] < 1e-10
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["worker"] for line in lines if line["type"] == "event" and line["event"] == "death"] == [victim]
    check_ledger(log)


@pytest.mark.parametrize(("optimizer", "sync"), [("momentum", "bsp"), ("adamw", "ssp")])
def test_a_saved_job_goes_on_in_step_or_not(pair, tmp_path, optimizer, sync):
    for far in pair.run("saved_out_of_step", path=str(tmp_path / "job.pt"), optimizer=optimizer, sync=sync):
        assert far < 1e-10


def test_losses_that_a_loop_scales_or_says_are_in_the_log_and_mistakes_are_answered(alone, tmp_path):
    log = tmp_path / "run.jsonl"
    (result,) = alone.run("torch_async_cases:losses", log=str(log))
    logged = [update["loss"] for update in updates_of(log)]
    assert len(logged) == 4 and logged == pytest.approx(result["true"], rel=1e-6)
    assert result["words"][:2] == [
        "end_epoch() with sync 'asp'; permitted: with sync 'bsp' or 'local'",
        "max_steps with sync 'asp'; permitted: with sync 'bsp' or 'local'",
    ]
    assert len(result["words"]) == 4
    assert all(one.startswith("a second backward() for a batch with sync 'asp'") for one in result["words"][2:])
