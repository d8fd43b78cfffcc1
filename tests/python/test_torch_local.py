"""Local rounds: what they compute, that all end where they should, and that nothing is lost."""

import time

import pytest

from ranks import Ranks
from test_torch_failures import check_ledger, store_of_ones_own

EXACT = 1e-10


@pytest.mark.parametrize("kind", ["mean", "sum", "count", "weight", "parts"])
def test_rounds_of_one_step_of_sgd_are_bsp(pair, kind):
    first, second = pair.run("local_against_bsp", kind=kind)
    assert first["went"] > 0.001  # else the comparison would say nothing
    assert first["far"] < EXACT and second["far"] < EXACT
    assert first["losses"] < EXACT
    assert first["sum"] == second["sum"]


def test_without_the_weights_of_unequal_shares_they_are_not(pair):
    assert pair.run("local_against_bsp", weighting="mean")[0]["far"] > 1e-5


@pytest.mark.parametrize("outer", ["average", "nesterov"])
@pytest.mark.parametrize("name", ["cnn", "gpt2"])
def test_rounds_are_local_steps_of_every_worker_and_a_step_along_their_mean_change(pair, name, outer):
    first, second = pair.run("rounds_alone", name=name, outer=outer)
    assert first["went"] > 0.001
    assert first["far"] < EXACT and second["far"] < EXACT
    assert first["sizes"] == [8] * 8 and second["sizes"] == [16] * 8  # 24 in the ratio 1 : 2, 3 + 3 + 2 local steps
    assert first["length"] == 8 and first["rounds"] == 3
    assert first["complete"]
    assert first["sum"] == second["sum"]


def test_loader_processes_prepare_the_batches_of_a_round(pair):
    first, _ = pair.run("rounds_alone", name="cnn", processes=2)
    assert first["far"] < EXACT and first["complete"]


@pytest.mark.parametrize("how", ["KILL", "exchange"])
def test_a_round_is_done_again_by_those_who_are_left(trio, tmp_path, how):
    """From its start: parameters, buffers, optimizer and scheduler. The reference knows nothing of the lost attempt."""
    log = tmp_path / "run.jsonl"
    trio.start("lost_in_a_round", how=how, log=str(log))
    results = [trio.result(rank) for rank in (0, 2)]
    for result in results:
        assert result["far"] < EXACT
        assert result["complete"] and result["members"] == 2
        assert result["events"] == [("death", 1)]
        assert result["counted"] == 9  # steps of the scheduler, those that did not happen left out
    assert [size for _, size in results[0]["seen"]] == [12] * 3 + [12] * 3 + [18] * 6
    check_ledger(log)


def test_a_worker_that_stops_in_a_round_is_evicted(trio):
    trio.start("lost_in_a_round", how="STOP", victim=1, timeout=12.0)
    for result in [trio.result(rank) for rank in (0, 2)]:
        assert result["far"] < EXACT
        assert result["events"] == [("evicted", 1)]


def test_memory_that_runs_out_within_a_round_makes_local_steps_smaller(pair):
    first, second = pair.run("memory_in_a_round")
    assert first["complete"] and second["complete"]
    assert "out-of-memory" in first["events"]
    assert second["last"] <= 6 and first["last"] >= 18
    assert first["sum"] == second["sum"]


def test_who_computes_in_a_long_round_hears_of_another_worker_before_its_next_local_step(pair):
    """Without that it is evicted as late after 10 s: 16 local steps of it take 32 s."""
    first, second = pair.run("memory_in_a_round", round_steps=16, pace=2.0, timeout=10.0)
    assert first["complete"] and second["complete"]
    assert first["events"] == second["events"] == {"out-of-memory"}
    assert first["sum"] == second["sum"]


def test_who_computes_in_a_round_goes_on_without_a_store(nursery, tmp_path):
    """No exchange of these needs it."""
    store = store_of_ones_own()
    ranks = Ranks(nursery, 2, store.port)
    ranks.start("torch_local_cases:without_a_store", folder=str(tmp_path))
    while not all((tmp_path / f"here.{rank}").exists() for rank in (0, 1)):
        time.sleep(0.05)
    del store
    (tmp_path / "lost").touch()
    for rank in (0, 1):
        result = ranks.result(rank)
        assert result["rounds"] == 3 and result["complete"]
        (words,) = [one for one in result["said"] if "rendezvous" in one]
        assert words.startswith("nobody can be heard of before the next exchange: the workers' rendezvous is lost (")
    ranks.close()


def test_looks_at_the_others_take_a_small_share_of_the_time(pair):
    """One answer of a tenth of a second is enough for ten seconds."""
    for asked in pair.run("torch_local_cases:looked_at_others"):
        assert len(asked) == 1 and asked[0].endswith("/trouble")


@pytest.mark.parametrize("outer", ["average", "nesterov"])
def test_a_checkpoint_holds_the_outer_optimizer(pair, tmp_path, outer):
    assert max(pair.run("saved_between_rounds", path=str(tmp_path / "job.pt"), outer=outer)) == 0.0


def test_a_round_that_is_not_finite_is_left_out(pair):
    for result in pair.run("not_finite_in_a_round", on_nonfinite="skip"):
        assert result["moved"] == 0.0 and result["optimizer"] and result["finite"]
        assert result["events"] == ["numbers"] and result["rounds"] == 4


def test_a_round_that_is_not_finite_ends_the_job(nursery):
    ranks = Ranks(nursery, 2)
    try:
        for result in ranks.run("not_finite_in_a_round", on_nonfinite="stop"):
            assert result["moved"] == 0.0 and result["optimizer"]
            assert result["error"].startswith("step 1: the gradient is not finite on ")
            assert result["error"].endswith("model and optimizer are as before the round")
    finally:
        ranks.close()


def test_the_length_of_rounds_follows_the_network(pair, tmp_path):
    log = tmp_path / "run.jsonl"
    (first, batches), (second, _) = pair.run("chosen_rounds", log=str(log))
    assert first == second and first[0] == 1
    # An exchange is ten local steps: 25 % of the time are 30. Timings here are rough.
    assert 10 <= max(first) <= 60
    assert batches == 150  # max_steps cuts the last round
    check_ledger(log)


def test_what_rounds_cannot_do_is_refused(pair):
    for words, far in pair.run("refused_in_rounds"):
        assert words == [
            "round_steps is 4 with sync 'bsp'; permitted: with sync 'local'",
            "staleness is 2 with sync 'local'; permitted: with sync 'ssp'",
            "warmup_steps is 3; permitted: 0 with sync 'local'",
            "on_bad_sample is 'skip' with sync 'local'; permitted: with sync 'bsp'",
            "network_share is 2.0; permitted: a finite number, 0.001 to 0.9",
            "ddp is {'bucket_cap_mb': 1} with sync 'local', which wraps no model; permitted: nothing",
            "the dataset is iterable with sync 'local'; permitted: one with __getitem__",
            "lengths with sync 'local'; permitted: with sync 'bsp'",
            "the model is DistributedDataParallel with sync 'local'; permitted: the plain model, whose gradients "
            "nobody averages",
            "prepare() got a AveragedModel that averages another model, with sync 'local'; permitted: with sync 'bsp', "
            "since everybody's would be another one",
            "accumulate(2) with sync 'local'; permitted: with sync 'bsp'",
            "state_dict() within a round, after 1 of 4 local steps; permitted: between two rounds, as behind a loop",
            "end_epoch() within a round, after 1 of 4 local steps; permitted: between two rounds, as behind a loop",
        ]
        assert far == 0.0


def test_a_job_that_is_alone_goes_in_rounds_as_well(alone):
    words, far = alone.run("refused_in_rounds")[0]
    assert len(words) == 12 and far == 0.0
