"""Workers that compute their share in micro-batches end where one process does that computes whole batches."""

import pytest

EXACT = 1e-9


@pytest.mark.parametrize(
    ("model", "mode"),
    [("gpt2", "plain"), ("gpt2", "ddp"), ("gpt2", "fsdp2"), ("lstm", "accumulate"), ("lstm", "compile")],
)
def test_unequal_numbers_of_micro_batches_equal_one_batch(pair, model, mode):
    first, second = pair.run("in_micro_batches", name=model, mode=mode)
    for result in first, second:
        assert result["went"] > 1e5 * EXACT  # else the comparison would say nothing
        assert result["far"] < EXACT
    assert first["called"] == [8] * 12 and second["called"] == [5, 5, 5, 1] * 12


@pytest.mark.parametrize("mode", ["count", "sum"])
def test_items_of_micro_batches_are_weighted_exactly(pair, mode):
    for result in pair.run("gradients_of_micro_batches", mode=mode):
        assert result["far"] < 1e-12 * max(result["size"], 1.0)
        assert result["noted"] == pytest.approx(result["true"], rel=1e-12)


def test_out_of_step_they_are_one_update(pair):
    first, second = pair.run("rounds_in_micro_batches")
    for result in first, second:
        assert result["far"] < EXACT and result["went"] > 1e5 * EXACT
    assert 5 in second["called"] and max(second["called"]) == 5 < max(first["called"])


def test_a_share_that_memory_does_not_hold_is_computed_in_micro_batches(trio):
    """Nobody else may take more, so the share cannot be smaller: 8 samples are tried, then 7 and 6 at a time."""
    results = trio.run("too_little_memory", holds=6, max_batch=8)
    for result in results:
        assert result["far"] < EXACT
        assert result["sizes"] == [8] * 6
        assert result["events"] == [(2, "with 8 samples"), (2, "with 7 samples")]
    assert [result["chunk"] for result in results] == [0, 0, 6]
    assert results[2]["called"][-2:] == [6, 2]


def test_who_computes_micro_batches_computes_smaller_ones_and_keeps_its_share(trio):
    results = trio.run("too_little_memory", holds=6, micro_batch=7)
    for result in results:
        assert result["far"] < EXACT
        assert result["sizes"] == [8] * 6
        assert result["events"] == [(2, "with 7 samples")]
    assert [result["chunk"] for result in results] == [7, 7, 6]


def test_a_worker_alone_computes_what_memory_holds(alone):
    (result,) = alone.run("too_little_memory", holds=20)
    assert result["far"] < EXACT and result["sizes"] == [24] * 6
    assert result["events"] == [(0, "with 24 samples"), (0, "with 21 samples")]
    assert result["chunk"] == 19 and result["called"][-2:] == [19, 5]


def test_a_lack_of_memory_in_ones_own_ddp_is_raised(pair):
    """The others, in DDP's own exchange, cannot be called back."""
    assert "DefaultCPUAllocator" in pair.run("too_little_memory_in_own_ddp")[1]


def test_where_the_batch_cannot_be_divided_it_is_said(pair):
    first, second = pair.run("micro_batches_refused")
    norm = (
        "micro_batch is set for a model with BatchNorm, whose statistics need the whole batch at once; permitted: 0, "
        "with max_batch as the memory ceiling"
    )
    whole = (
        "{} with a batch of 16 samples and micro_batch 5; permitted: backward(loss_of, *batch), which calls "
        "loss_of(*part) for every micro-batch"
    )
    assert first == [norm]
    assert second == [
        norm,
        whole.format("backward(loss)"),
        whole.format("weight"),
        "backward() got a Tensor and a batch; permitted: a function of the batch",
        "backward() got a batch with 3 and 16 rows; permitted: a row for each sample everywhere",
        "backward() got a batch with a int; permitted: what default_collate makes",
        "count is 16 beside a batch; permitted: a function of the batch",
    ]


@pytest.mark.parametrize("wrapper", ["plain", "ddp"])
def test_a_model_that_is_called_before_its_micro_batches_is_refused(pair, wrapper):
    """DDP would average the first of them, while others average their last one."""
    for steps, said in pair.run("called_before_micro_batches", wrapper=wrapper):
        assert steps == 1
        assert said.startswith("the model was called, with gradients and without a backward pass, before a batch")


def test_micro_batches_are_one_meeting_of_the_workers(pair):
    (first, once), (second, often) = pair.run("sync_points_of_micro_batches")
    assert (once, often) == (2, 8)
    assert first == second == [[1, 1], [1, 1]]
