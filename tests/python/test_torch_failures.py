"""Real processes that die, stop or run out of memory in the middle of a step."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import isochron
from chances import changed
from ranks import STORE, Ranks, stop


def check_ledger(log):
    """The program proves from the run log that every sample counts once."""
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    done = subprocess.run([program, "ledger", log], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def check_survivors(results):
    for result in results:
        assert result["far"] < 1e-9  # where one process ends that nothing happened to
        assert result["complete"]  # every sample of the epoch once


def store_of_ones_own():
    """For three ranks of which the first may be lost."""
    import torch.distributed as dist

    return dist.TCPStore("127.0.0.1", 0, 3, is_master=True, wait_for_workers=False)


def test_survivors_of_a_killed_worker_go_on(trio):
    trio.start("survive", how="KILL", victim=1, when=4)
    results = [trio.result(rank) for rank in (0, 2)]
    check_survivors(results)
    for result in results:
        assert result["members"] == 2
        assert result["events"] == [("death", 1)]


def test_the_record_that_a_lost_first_worker_has_not_written_is_written_by_the_next(nursery, tmp_path):
    """All have finished the step by then, so that the log would lack it and not prove its samples."""
    store = store_of_ones_own()
    ranks = Ranks(nursery, 3, store.port)
    log = tmp_path / "run.jsonl"
    ranks.start("torch_worker:tried", sync="bsp", phase="record", fault="kill", victim=0, folder=str(tmp_path),
                timeout=60.0, log=str(log))  # fmt: skip
    assert [ranks.result(rank)["end"] for rank in (1, 2)] == ["on", "on"]
    ranks.close()
    run = isochron.read_run(log)
    assert [step["step"] for step in run.step_records] == list(range(8))
    assert [event["event"] for event in run.event_records] == ["death"]


def of_the_log(said):
    return [words for words in said if "log" in words]


def test_a_log_on_a_full_disk_is_a_warning_and_goes_on_when_there_is_room(pair, small_disk):
    results = pair.run("torch_failure_cases:full_disk", folder=str(small_disk), full=10, free=30)
    assert [(one["step"], one["complete"]) for one in results] == [(40, True)] * 2
    trouble, end = of_the_log(results[0]["said"])
    assert "No space left on device" in trouble
    assert "; the run goes on, and the log when it can be written again" in trouble
    assert "the log goes on: " in end and of_the_log(results[1]["said"]) == []
    run = isochron.read_run(small_disk / "run.jsonl")
    assert [step["step"] for step in run.step_records] == list(range(40))
    (unlogged,) = [event for event in run.event_records if event["event"] == "unlogged"]
    assert "lines could not be written at once, and 0 of them are missing here" in unlogged["words"]
    check_ledger(small_disk / "run.jsonl")


def test_a_log_whose_disk_stays_full_lacks_lines_and_nothing_else(pair, small_disk):
    results = pair.run("torch_failure_cases:full_disk", folder=str(small_disk), full=10, free=1000)
    assert [(one["step"], one["complete"]) for one in results] == [(40, True)] * 2
    trouble, end = of_the_log(results[0]["said"])
    written = len(isochron.read_run(small_disk / "run.jsonl").step_records)
    assert 10 <= written < 40
    assert end.startswith(f"{40 - written} lines of the log are missing: ") and "No space left on device" in end


def test_who_takes_over_the_log_of_a_full_disk_has_the_lines_that_waited(nursery, small_disk):
    store = store_of_ones_own()
    ranks = Ranks(nursery, 3, store.port)
    ranks.start("torch_failure_cases:full_disk", folder=str(small_disk), full=10, free=32, killed=25)
    results = [ranks.result(rank) for rank in (1, 2)]
    ranks.close()
    assert [(one["step"], one["complete"]) for one in results] == [(40, True)] * 2
    run = isochron.read_run(small_disk / "run.jsonl")
    assert [step["step"] for step in run.step_records] == list(range(40))
    assert "unlogged" in [event["event"] for event in run.event_records]
    check_ledger(small_disk / "run.jsonl")


def test_who_cannot_take_the_log_over_goes_on_without_it(nursery, tmp_path):
    """The log's folder is on the lost worker's host alone."""
    store = store_of_ones_own()
    ranks = Ranks(nursery, 3, store.port)
    folder = tmp_path / "logs"
    folder.mkdir()
    ranks.start("torch_failure_cases:full_disk", folder=str(folder), full=-1, free=-1, killed=25, gone=True)
    results = [ranks.result(rank) for rank in (1, 2)]
    ranks.close()
    assert [(one["step"], one["complete"]) for one in results] == [(40, True)] * 2
    (trouble,) = of_the_log(results[0]["said"])
    assert trouble.endswith("run.jsonl: No such file or directory; the run goes on without a log")
    assert of_the_log(results[1]["said"]) == []


def test_a_log_that_cannot_begin_is_a_warning(pair, small_disk):
    results = pair.run("torch_failure_cases:second_log_on_a_full_disk", folder=str(small_disk))
    assert [one["step"] for one in results] == [12] * 2
    trouble, *_ = of_the_log(results[0]["said"])
    assert trouble.endswith("run-2.jsonl: No space left on device; the run goes on without a log")
    assert of_the_log(results[1]["said"]) == []
    assert [one["step"] for one in isochron.read_run(small_disk / "run.jsonl").step_records] == [0, 1, 2, 6, 7, 8]


def test_what_a_killed_worker_had_accumulated_is_computed_again(trio):
    trio.start("survive", how="KILL", victim=1, when=5, accumulate=2)  # the second of steps 4 and 5
    results = [trio.result(rank) for rank in (0, 2)]
    check_survivors(results)
    for result in results:
        assert result["events"] == [("rollback", 0), ("death", 1)]
        assert [step for step, _ in result["seen"]] == [0, 1, 2, 3, 4, *range(4, 12)]


def test_a_stopped_worker_is_evicted_by_the_others(trio):
    trio.start("survive", how="STOP", victim=2, when=4, timeout=12.0)
    results = [trio.result(rank) for rank in (0, 1)]
    check_survivors(results)
    for result in results:
        assert result["members"] == 2
        assert result["events"] == [("evicted", 2)]


@pytest.mark.parametrize("moment", ["groups", "between groups", "connected", "rebuilding"])
def test_a_second_worker_may_be_lost_while_the_others_come_together(nursery, moment):
    ranks = Ranks(nursery, 4)
    try:
        ranks.start("survive_twice", victim=1, second=3, moment=moment)
        assert ranks.connections[0].poll(120)  # long before the time-out
        results = [ranks.result(rank) for rank in (0, 2)]
        check_survivors(results)
        for result in results:
            assert result["members"] == 2
            assert sorted(result["events"]) == [("death", 1), ("death", 3)]
    finally:
        ranks.close()


@pytest.mark.parametrize("late", [0, 2])
def test_who_is_still_in_the_step_before_a_save_does_not_wait_for_those_who_are_in_it(trio, tmp_path, late):
    """A worker is lost between the two: those who were in save() do not exchange a word about it any more."""
    trio.start("torch_failure_cases:lost_at_a_save", folder=str(tmp_path), late=late)
    for rank in (0, 2):
        result = trio.result(rank)
        assert result["seconds"] < 60.0  # half the time-out
        assert (result["step"], result["complete"], result["size"], result["there"]) == (6, True, 2, True)


@pytest.mark.parametrize("late", [0, 2])
def test_who_still_compares_datasets_does_not_wait_for_those_who_have_gone_on(trio, late):
    trio.start("torch_failure_cases:lost_between_epochs", late=late)
    for rank in (0, 2):
        result = trio.result(rank)
        assert result["seconds"] < 60.0  # half the time-out
        assert (result["step"], result["complete"], result["size"]) == (9, [True] * 3, 2)


def test_a_worker_may_be_lost_while_another_gets_the_state(trio):
    trio.start("lost_in_transfer")
    results = [trio.result(rank) for rank in (0, 1)]
    check_survivors(results)
    for result in results:
        assert result["members"] == 2
        assert result["events"] == [("death", 2)]


def test_an_error_of_ones_own_is_not_taken_for_a_lost_worker_by_its_words(trio):
    for result in trio.run("own_error"):
        assert result["kind"] == "RuntimeError" and result["words"].startswith("gloo: connection reset by peer")
        assert result["calls"] == [0, 1, 2]


def test_a_sample_that_always_fails_stops_all_workers_with_its_number(trio):
    for result in trio.run("spoiled", bad=[31], on_bad_sample="stop"):
        assert result["kind"] == "SampleError" and result["sample"] == 31
        assert result["words"].startswith("sample 31 of the dataset failed with ValueError: no picture at 31")


def test_a_sample_that_fails_out_of_step_is_named_to_all_workers(trio):
    for words in trio.run("spoiled_out_of_step", bad=[31]):
        assert words.startswith("sample 31 of the dataset failed with ValueError: no picture at 31")


def test_on_bad_sample_is_refused_where_it_cannot_be_kept(alone):
    (refusals,) = alone.run("skipping_refused")
    assert refusals == [
        "on_bad_sample is 'ask'; permitted: stop, skip",
        "on_bad_sample is 'skip' with sync 'asp'; permitted: with sync 'bsp'",
        "on_bad_sample is 'skip' in a job that is not elastic; permitted: stop (see elastic=)",
        "the dataset is iterable with on_bad_sample 'skip'; permitted: one with __getitem__",
    ]


def test_what_others_write_into_the_store_is_as_if_it_were_not_there(chance):
    import torch.distributed as dist

    from isochron.torch.sealed import SealedStore

    store = dist.HashStore()
    ours, theirs = SealedStore(store, b"the job's key", 60.0), SealedStore(store, b"another one", 60.0)
    theirs.set("evicted/1", "{}")
    assert ours.get("evicted/1") is None
    ours.set("dead/1", "by the launcher")
    assert (ours.get("dead/1"), theirs.get("dead/1")) == ("by the launcher", None)
    store.set(ours._name("evicted/1"), store.get(ours._name("dead/1")))  # a true word, in another place
    assert ours.get("evicted/1") is None
    for _ in range(200):
        store.set(ours._name("evicted/1"), chance.randbytes(chance.randrange(0, 100)))
        assert ours.get("evicted/1") is None
        true = ours._sealed("evicted/1", '{"by": 2, "ranks": [1]}')
        if (said := changed(chance, true)) != true:
            store.set(ours._name("evicted/1"), said)
            assert ours.get("evicted/1") is None
    store.set(ours._name("members"), b"\xff" * 50)
    with pytest.raises(isochron.Error, match="not of this job has written members into the store"):
        ours.agree("members", "[0, 1]")
    assert ours.agree("other", "[0]") == ours.agree("other", "[1]") == "[0]"
    with pytest.raises(isochron.Error, match="nobody of the job has written evicted/1"):
        ours.wait("evicted/1", 0.1)


@pytest.mark.parametrize(("num_workers", "accumulate"), [(0, 1), (2, 1), (0, 2)])
def test_samples_that_fail_are_skipped_and_the_mean_is_over_the_others(trio, tmp_path, num_workers, accumulate):
    bad = [3, 31, 77, 78, 140]
    log = tmp_path / "run.jsonl"
    results = trio.run("spoiled", bad=bad, on_bad_sample="skip", num_workers=num_workers, accumulate=accumulate,
                       log=str(log))  # fmt: skip
    for result in results:
        assert result["kind"] == "none" and result["size"] == 3
        assert result["far"] < 1e-9  # from the mean over the samples that there are
        assert result["complete"]
        told = [words for event, words in result["events"] if event == "skipped"]
        assert sorted(int(words.split("sample ")[1].split()[0]) for words in told) == bad
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(line["type"] == "event" and line["event"] == "skipped" for line in lines) == len(bad)
    check_ledger(log)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_worker_alone_skips_samples_that_fail(alone, accumulate):
    (result,) = alone.run("spoiled", bad=[3, 77], on_bad_sample="skip", accumulate=accumulate)
    assert result["kind"] == "none" and result["far"] < 1e-9 and result["complete"]
    assert [event for event, _ in result["events"] if event == "skipped"] == ["skipped"] * 2


def test_memory_that_runs_out_costs_one_worker_its_ceiling_and_nobody_a_sample(trio):
    results = trio.run("survive", how="memory", victim=2, when=4)
    check_survivors(results)
    for result in results:
        assert result["members"] == 3
        assert result["events"] == [("out-of-memory", 2)]
    # 24 in the ratio 3 : 2 : 1 gives 4 to the last; 7/8 of that, or at least one less, is 3.
    assert [batch for _, batch in results[2]["seen"]] == [4] * 4 + [3] * 8
    assert [step for step, _ in results[0]["seen"]] == list(range(12))


def test_memory_may_run_out_several_times_in_a_row(trio):
    results = trio.run("survive", how="memory", victim=2, when=4, holds=1)
    check_survivors(results)
    for result in results:
        assert result["events"] == [("out-of-memory", 2)] * 3
    assert [batch for _, batch in results[2]["seen"]] == [4] * 4 + [1] * 8


def test_a_time_out_names_rank_and_host(nursery):
    ranks = Ranks(nursery, 2)
    try:
        ranks.start("late")
        told = ranks.result(0)
        assert told["kind"] == "TimeoutError"
        assert told["ranks"] == (1,) and told["hosts"] == (socket.gethostname(),)
        assert f"rank 1 on {socket.gethostname()}" in told["words"]
    finally:
        ranks.close()


def test_a_store_whose_keeper_is_stopped_is_given_up():
    """torch's own client waits for ever for an answer."""
    import torch.distributed as dist

    from isochron.errors import PeerLostError
    from isochron.torch.sealed import SealedStore

    command = [sys.executable, "-c", STORE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        try:
            client = dist.TCPStore("127.0.0.1", int(keeper.stdout.readline()), wait_for_workers=False)
            store = SealedStore(client, b"key", 8.0)
            store.set("name", "value")
            assert store.get("name") == "value" and store.get("another name") is None
            stop(keeper)
            started = time.monotonic()
            for _ in range(100):  # the first question waits for 8 s, none of the others
                with pytest.raises(PeerLostError, match="did not answer within 8 s; whoever keeps it, the launcher or"):
                    store.get("name")
            assert time.monotonic() - started < 60.0
        finally:
            keeper.kill()  # stopped, it would be waited for without end


def test_who_looks_after_nccl_and_hangs_keeps_nobody_from_leaving(monkeypatch):
    from isochron.torch import nccl_watch

    monkeypatch.setattr(nccl_watch, "CLOSING_SECONDS", 0.2)
    asked, over = threading.Event(), threading.Event()
    watch = nccl_watch.Watch(lambda: asked.set() or over.wait(60) and "", str, str, 60.0)
    assert asked.wait(60)
    started = time.monotonic()
    watch.close()
    over.set()
    assert time.monotonic() - started < 30.0


def test_a_death_that_is_not_visible_yet_is_waited_for():
    """A process that is killed closes its connections before anybody can see that it is dead."""
    import torch.distributed as dist

    from isochron.torch.peers import Rendezvous, Peer
    from isochron.torch.sealed import SealedStore

    store = SealedStore(dist.HashStore(), b"key", 60.0)
    me = Peer.here(0)
    rendezvous = Rendezvous(store, store, me, timeout=60.0)
    with subprocess.Popen(["sleep", "1"]) as dying, subprocess.Popen(["sleep", "60"]) as living:
        peers = [dataclasses.replace(me, rank=rank, process=it.pid) for rank, it in ((1, dying), (2, living))]
        assert rendezvous.find_gone(peers, patience=0.0) == []
        assert rendezvous.find_gone(peers, patience=30.0) == peers[:1]
        assert rendezvous.find_gone(peers[1:], patience=0.1) == []
        store.set("1/here/2", "{}")  # it has come to the next generation, so that waiting for its death is in vain
        started = time.monotonic()
        assert rendezvous.find_gone(peers[1:], patience=30.0) == []
        assert time.monotonic() - started < 15.0
        living.kill()


def test_who_comes_while_another_worker_decides_is_not_evicted():
    """Rank 1 is not here when we look, but in the list that rank 2 writes right after."""
    import subprocess
    import threading

    import torch.distributed as dist

    from isochron.torch.peers import Rendezvous, Peer
    from isochron.torch.sealed import SealedStore

    store = SealedStore(dist.HashStore(), b"of this test", 60.0)
    me = Peer.here(0)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            other = Peer(1, me.host, process.pid, me.machine)
            store.set("1/members", "[0, 1]")
            arrival = threading.Timer(0.2, store.set, ["1/here/1", '"late"'])
            arrival.start()
            members, statements, late = Rendezvous(store, store, me, timeout=30.0).gather([me, other], "first")
            assert (members, statements, late) == ([me, other], {0: "first", 1: "late"}, [])
            assert process.poll() is None
        finally:
            process.kill()
