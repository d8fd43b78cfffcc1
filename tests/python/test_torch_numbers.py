"""Numbers that are not finite, and other things that the step protocol of core decides for PyTorch."""

import json
import socket

import pytest

HOST = socket.gethostname().partition(".")[0]


@pytest.mark.parametrize(("numbers", "what"), [(None, "loss"), ("stop", "offset"), ("stop", "gradient")])
def test_a_step_that_is_not_finite_stops_all_with_the_model_as_before(pair, tmp_path, numbers, what):
    for result in pair.run("not_finite", numbers=numbers, what=what, path=str(tmp_path / "job.pt")):
        assert result["kind"] == "NonFiniteError"
        assert result["words"].startswith(f"step 2: the gradient is not finite on {HOST}-1 (rank 1, loss ")
        assert f"{HOST}-0" not in result["words"]
        assert result["as_before"] and result["restored"]
        assert (result["step"], result["used"]) == (2, 24)  # the step does not count


def test_a_group_of_steps_that_is_not_finite_stops_at_its_beginning(pair, tmp_path):
    for result in pair.run("not_finite", numbers="stop", what="loss", accumulate=2, path=str(tmp_path / "job.pt")):
        assert result["kind"] == "NonFiniteError" and result["as_before"] and result["restored"]
        assert (result["step"], result["used"]) == (2, 24)


@pytest.mark.parametrize(("what", "accumulate"), [("loss", 1), ("gradient", 1), ("loss", 2)])
def test_a_step_that_is_not_finite_is_left_out_everywhere(pair, tmp_path, what, accumulate):
    log = tmp_path / "run.jsonl"
    for result in pair.run("not_finite", numbers="skip", what=what, accumulate=accumulate, log=str(log)):
        assert result["kind"] == "none" and result["finite"]
        assert (result["step"], result["used"]) == (5, 60)  # its samples count as used
        ((event, words),) = result["events"]
        assert event == "numbers" and words.startswith("step ") and f"{HOST}-1 (rank 1" in words
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines if line["type"] == "step"] == [0, 1, 2, 3, 4]
    assert [line["event"] for line in lines if line["type"] == "event"] == ["numbers"]


def test_several_optimizers_are_judged_before_the_first_of_them_takes_its_step(pair):
    assert pair.run("two_optimizers") == [(1, True)] * 2


def test_numbers_can_be_ignored(pair):
    for result in pair.run("not_finite", numbers="ignore", what="loss"):
        assert (result["kind"], result["finite"], result["used"]) == ("none", False, 60)


def test_where_the_job_does_not_see_the_optimizer_the_loss_tells_afterwards(pair):
    assert pair.run("unprepared", numbers="stop") == [f"step 0: the loss is not finite on {HOST}-1 (rank 1)"] * 2
    assert pair.run("unprepared", numbers="ignore") == ["nothing"] * 2


def test_an_epoch_that_lacks_a_sample_is_noticed_at_its_end(pair):
    for words in pair.run("short_ledger"):
        assert "an epoch used some sample twice or not at all" in words


def test_every_worker_says_for_itself_how_often_it_waited(pair):
    for told in pair.run("sync_points"):
        assert told == [[5, 1]] * 2


# As isochron 0.1.0 wrote it before jobs shared the native step protocol.
BEFORE = {
    "version": "0.1.0", "global_batch": 10, "seed": 0, "last_batch": "keep", "policy": "static",
    "workers": [{"id": 0, "kind": "cpu", "weight": 1.0, "min_batch": 1, "max_batch": 10, "granularity": 1,
                 "name": "one \\ two"}],
    "next_id": 1, "ceilings": "n ceilings.count 0p+0\nn given_up_at -1p+0\n",
    "controller": "n batch_sizes 1.4p+3\nn changed 0p+0\nn learning_rate_factor 1p+0\nn rate.mean_square 0p+0\n"
    "n rate.observations 0p+0\nn rate.variance 0p+0\nn reason 1p+1\nn repaired 0p+0\nn step 1p+0\nw policy static\n"
    "w words given weights\nw workers 0\n",
    "dataset_size": 30, "epoch": 0, "position": 10,
    "ledger": "n duplicates.count 0p+0\nn size 1.ep+4\nn used 0p+0 1.4p+3\n",
}  # fmt: skip


def test_a_state_of_the_version_before_is_read(pair):
    results = pair.run("from_before", saved=BEFORE)
    for result in results:
        assert result["place"] == (1, 0, [5, 5], [0, 1]) and result["complete"]
    assert len(set(results[0]["seen"]) | set(results[1]["seen"])) == 20


def test_a_state_that_is_none_is_refused_with_its_version(alone):
    (words,) = alone.run("state_of_nothing")
    assert words.startswith("the state is of 9.9; permitted: what state_dict() of isochron ")


def test_large_numbers_are_finite():
    import torch

    from isochron.torch.finite import all_finite

    large = [torch.full((3,), 3e38), torch.full((2,), 6e4, dtype=torch.float16), torch.ones(2, dtype=torch.float64)]
    assert all_finite([]) and all_finite(large)  # though the sum of their squares is not
    for wrong in (float("nan"), float("inf")):
        assert not all_finite([*large, torch.tensor([1.0, wrong])])
