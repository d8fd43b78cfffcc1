"""What people's loops need beside the plain case, each against what one process computes."""

import json
import socket

import pytest

import isochron


@pytest.mark.parametrize("mode", ["mean", "sum", "accumulate"])
def test_unequal_token_counts_are_weighted_exactly(pair, mode):
    for result in pair.run("token_gradients", mode=mode):
        assert result["far"] < 1e-12 * max(result["size"], 1.0)
        if mode == "mean":
            assert result["loss"] == pytest.approx(result["true_loss"], rel=1e-12)


def test_an_overflow_on_one_rank_is_seen_by_all(pair):
    first, second = pair.run("scaler", overflowing_rank=1)
    assert first["kept"] and second["kept"]  # the step with the overflow was skipped
    assert first["moved"] and first["sum"] == second["sum"]  # and those after it were not
    assert first["scale"] == second["scale"] == 512.0


def test_losses_that_the_loop_scales_itself(pair):
    for result in pair.run("gan"):
        assert result["far"] < 1e-12
        assert result["steps"] == 5


def test_compiled_models_are_compiled_once_for_all_batch_sizes(pair):
    for result in pair.run("recompiles", sizes=[12, 5, 17, 8, 20, 11]):
        assert len(result["seen"]) == 6
        assert result["compiled"] == 1


def test_comm_hooks_work(pair):
    for result in pair.run("comm_hook"):
        assert 0 < result["far"] < 0.002  # half precision has 11 bits


def far(left, right):
    return max(abs(one - other) for one, other in zip(left["parameters"], right["parameters"], strict=True))


def test_power_sgd_gets_the_weights_of_unequal_shares(pair):
    """What it makes of the gradients depends on their average alone, which is the same however samples are dealt."""
    first, second = pair.run("power_sgd")
    equal, _ = pair.run("power_sgd", even=True)
    wrong, _ = pair.run("power_sgd", weighting="mean")
    assert first["saved"] > 0 and first["errors"] > 0
    assert first["parameters"] == second["parameters"]
    assert far(first, equal) < 1e-9 < 1e-4 < far(first, wrong)


def test_power_sgd_goes_on_with_those_who_are_left(trio):
    trio.start("power_sgd", victim=1)
    first, second = [trio.result(rank) for rank in (0, 2)]
    assert first["complete"] and second["complete"]
    assert first["parameters"] == second["parameters"]
    assert first["errors"] > 0  # it compresses again


def test_a_step_that_is_not_finite_leaves_nothing_in_power_sgd(pair):
    first, second = pair.run("power_sgd", spoil=6)
    assert first["events"] == ["numbers"]  # no later one
    assert first["parameters"] == second["parameters"]


def test_zero_redundancy_optimizer_works(pair):
    for result in pair.run("zero"):
        assert result["far"] < 1e-12 and result["size"] > 0.1


def test_workers_that_disagree_are_told_so(pair):
    for words in pair.run("disagree"):
        assert words == "global_batch is 13 on rank 1; permitted: what rank 0 has, 12"


def test_a_restored_job_ends_where_the_saved_one_did(pair, tmp_path):
    path = str(tmp_path / "job.pt")
    whole, *_ = pair.run("saved", path=path, restore=False)
    again, *_ = pair.run("saved", path=path, restore=True)
    assert whole["steps"] == [0, 1, 2, 3, 4] and again["steps"] == [2, 3, 4]
    assert again["rate"] == whole["rate"] == pytest.approx(0.01 / 2**5)
    assert again["end"] == whole["end"]


def test_a_slow_worker_gets_less(pair):
    first, second = pair.run("balance")
    assert first == second
    # By 4 and 16 ms a sample 32 and 8; other work on the machine may move some, but not to equal shares.
    assert first[0] > 22


def test_the_run_log_and_tensorboard_tell_of_every_step(pair, tmp_path):
    path, board = tmp_path / "run.jsonl", tmp_path / "board"
    pair.run("run_log", path=str(path), board=str(board))
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["samples_per_epoch"] == 90
    assert [worker["name"] for worker in header["workers"]] == ["machine-0", "machine-1"]
    steps = [line for line in lines if line["type"] == "step"]
    assert [step["step"] for step in steps] == list(range(10))
    assert all(sum(step["batch_sizes"]) in (20, 10) for step in steps)
    assert lines[-1]["accuracy"] == 0.5
    assert isochron.read_run(path)  # the package reads what it wrote
    assert any(board.glob("events*"))


def test_a_worker_of_an_emulated_cluster_publishes_its_step(alone, tmp_path):
    assert alone.run("clustered", path=str(tmp_path / "step")) == [("slow", 30, 2, 2)]  # steps 0, 1 and 2


@pytest.mark.parametrize("options", [{}, {"last_batch": "drop"}, {"sync": "asp"}, {"sync": "local"}])
def test_a_global_batch_above_the_dataset_is_refused(alone, options):
    (words,) = alone.run("too_large", options=options)
    assert words.startswith("global_batch is 7; permitted: up to 6,") or "at most the dataset's 6 samples" in words


def test_a_job_starts_with_the_speeds_of_an_earlier_run(pair, tmp_path):
    from conftest import step

    path = tmp_path / "run.jsonl"
    host = socket.gethostname().partition(".")[0]
    members = [{"id": rank, "name": f"{host}-{rank}", "kind": "cpu"} for rank in range(2)]
    header = {"type": "run", "schema": 1, "program": "torch", "version": "0", "policy": "isochron", "cluster": "",
              "global_batch": 40, "seed": 0, "workers": members}  # fmt: skip
    lines = [header, *(step(number, [20, 20], [0.1, 0.3]) for number in range(5))]  # 200 and 67 samples a second
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for sizes, words in pair.run("started_from", path=str(path)):
        assert sizes == [30, 10] and "earlier run" in words
    for words in pair.run("started_from", path=str(tmp_path / "nothing")):  # on both, though the first one reads
        assert words.startswith(f"start_from is '{tmp_path / 'nothing'}'; permitted: a run log")
