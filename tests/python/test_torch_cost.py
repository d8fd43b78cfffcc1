"""Samples of unequal lengths: dealt by cost, each once, with the gradient of one process."""

import collections
import json
import os
import subprocess

import pytest

EXACT = 1e-10
CASES = "torch_cost_cases:"


@pytest.mark.parametrize("kind", ["lstm", "gpt", "encoder"])
def test_dealt_by_cost_equals_single_process(pair, kind):
    results = pair.run(CASES + "cost_parity", kind=kind, steps=50)
    for result in results:
        assert result["went"] > 1e6 * EXACT  # else the comparison would say nothing
        assert result["far"] < EXACT
        assert result["loss"] == pytest.approx(result["true_loss"], abs=EXACT)
    first, second = (result["shares"] for result in results)
    assert len(set(first)) > 2  # the shares differ from step to step
    assert sum(first[25:]) > 1.2 * sum(second[25:])  # and the faster worker has more


def test_what_attention_costs_is_learned_alike_by_all(pair):
    results = pair.run(CASES + "cost_parity", kind="lstm", steps=50, cost="attention")
    assert results[0]["learned"] == results[1]["learned"] > 0.1
    for result in results:
        assert result["far"] < EXACT


@pytest.mark.parametrize("by", ["loader", "weight"])
def test_a_loader_that_counts_lengths_needs_no_more_words(pair, by):
    for result in pair.run(CASES + "cost_parity", kind="lstm", steps=50, by=by):
        assert result["went"] > 1e6 * EXACT
        assert result["far"] < EXACT


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_is_dealt_by_lengths_as_they_arrive(pair, num_workers):
    results = pair.run(CASES + "cost_stream", num_workers=num_workers)
    size = results[0]["size"]
    taken = collections.Counter(one for result in results for one in result["taken"])
    assert taken == collections.Counter((epoch, number) for epoch in (0, 1) for number in range(size))
    for result in results:
        assert result["far"] < EXACT
        assert min(result["work"]) > 0.0
    first, second = (result["shares"] for result in results)
    assert len(set(first)) > 2
    assert sum(first) > 1.2 * sum(second)


def test_a_stream_without_weighting_is_not(pair):
    assert pair.run(CASES + "cost_stream", weighting="mean")[0]["far"] > 1e4 * EXACT


def test_without_weighting_it_does_not(pair):
    assert pair.run(CASES + "cost_parity", kind="encoder", steps=50, weighting="mean")[0]["far"] > 1e4 * EXACT


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_epoch_uses_each_sample_once(pair, num_workers):
    results = pair.run(CASES + "cost_counts", num_workers=num_workers)
    for epoch in (0, 1):
        used = collections.Counter()
        for result in results:
            for at, _, numbers, _ in result["rounds"]:
                used.update(numbers if at == epoch else [])
        assert used == collections.Counter(range(103))
    assert all(result["complete"] and result["length"] == 6 for result in results)
    assert sum(results[0]["sizes"]) in (19, 20, 21)  # rounded amounts of work


def test_the_log_of_a_run_dealt_by_cost_is_proven_and_as_small_as_by_count(pair, tmp_path):
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    log = tmp_path / "run.jsonl"
    results = pair.run(CASES + "cost_counts", num_workers=0, log=str(log))
    done = subprocess.run([program, "ledger", log], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "proven" in done.stdout.splitlines()[-1].lower()
    steps = [line for line in log.read_text().splitlines() if '"step"' in line]
    assert len(steps) >= 2 * results[0]["length"]
    lists = [value for step in steps for value in json.loads(step).values() if isinstance(value, list)]
    assert {len(one) for one in lists} == {2}  # one value a worker: no positions are listed


@pytest.mark.parametrize("num_workers", [0, 2])
def test_samples_that_fail_are_skipped(pair, num_workers):
    """With loader processes, too: they are forked and must not hold the connections of a group that is given up."""
    results = pair.run(CASES + "cost_counts", num_workers=num_workers, bad=(7, 60), epochs=1)
    rounds = [one for result in results for one in result["rounds"]]
    used = collections.Counter(number for _, _, numbers, _ in rounds for number in numbers)
    assert used == collections.Counter(set(range(103)) - {7, 60})
    assert all(result["complete"] for result in results)


def test_padded_shares_waste_less_than_samples_in_the_order_drawn(pair):
    """Positions computed, those of the padding included: workers get samples of like length."""
    by_length = sum(size for result in pair.run(CASES + "cost_counts", num_workers=0) for *_, size in result["rounds"])
    packed = pair.run(CASES + "cost_counts", num_workers=0, collate="packed")
    as_drawn = sum(size for result in packed for *_, size in result["rounds"])
    assert by_length < 0.85 * as_drawn


def test_a_resume_on_another_number_of_workers_repeats_and_leaves_out_nothing(pair, trio):
    begun = trio.run(CASES + "cost_begin", steps=4)
    refused = pair.run(CASES + "cost_go_on", state=begun[0]["state"], lengths=False)
    assert "without the lengths" in refused[0]["refused"]
    ended = pair.run(CASES + "cost_go_on", state=begun[0]["state"])
    used = collections.Counter()
    for result in (*begun, *ended):
        used.update(result["seen"])
    assert used == collections.Counter(range(95))
    assert all(result["complete"] and result["step"] == 4 for result in ended)


def test_survivors_of_a_killed_worker_go_on(trio):
    trio.start(CASES + "cost_survive", victim=1, when=4)
    results = [trio.result(rank) for rank in (0, 2)]
    assert all(result["size"] == 2 and result["complete"] for result in results)
    # The steps before have samples of the one that is lost; from then on the two use each sample once.
    steps = [pair for result in results for pair in result["seen"].items()]
    later = [number for step, numbers in steps if step >= 4 for number in numbers]
    assert len(later) == len(set(later)) == 300 - 4 * 20


def test_bad_lengths_and_costs_are_refused(alone):
    (words,) = alone.run(CASES + "cost_refused")
    assert "lengths are 3 numbers; permitted: one for each of the dataset's 6 samples" in words["too few"]
    assert "the length of sample 2 is nan" in words["not finite"]
    assert "input_ids, length" in words["column"]
    assert "a dataset without columns" in words["no columns"]
    assert "cost is 'quadratic'; permitted: linear, attention, attention:width=WIDTH" in words["cost"]
    assert "attention:width=WIDTH" in words["width"]
    assert "without lengths=" in words["cost alone"]
    assert "work of sample 0" in words["negative"]
    assert "shape ()" in words["shape"]
    assert "collate is 'stacked'; permitted: padded, packed" in words["collate"]
    assert "sampler" in words["sampler"]
    assert "stream" in words["stream"]
    assert "count is 'tokens'; permitted: None" in words["count"]
    assert "count is 'lengths' without lengths=" in words["count alone"]
    assert "a second dataset" in words["second"]


def test_lengths_and_costs_may_be_said_in_many_ways(alone):
    (works,) = alone.run(CASES + "cost_forms")
    for name in ("list", "tensor", "function", "column", "sequences"):
        assert works[name] == [3, 1, 2, 5]
    assert works["attention"] == pytest.approx([3 + 9 / 60, 1 + 1 / 60, 2 + 4 / 60, 5 + 25 / 60])
    assert works["own"] == [6, 2, 4, 10]
