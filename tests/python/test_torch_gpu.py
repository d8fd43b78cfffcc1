"""Jobs with workers on a GPU; skipped where there is none."""

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_workers_on_a_gpu_and_on_cpus_train_like_one_process(trio):
    for rank, result in enumerate(trio.run("mixed")):
        assert result["far"] < 1e-9
        assert result["complete"]
        assert result["sizes"] == [4 * (1 + rank)] * 20


def test_memory_that_runs_out_on_a_gpu_costs_one_worker_its_ceiling_and_nobody_a_sample(nursery):
    from ranks import Ranks

    ranks = Ranks(nursery, 2)
    try:
        results = ranks.run("starve")
    finally:
        ranks.close()
    for result in results:
        assert result["complete"]
        assert [step for step, _ in result["computed"]] == list(range(6))
        assert result["events"] and set(result["events"]) == {("out-of-memory", 1)}
    assert all(batch < 12 for _, batch in results[1]["computed"])
    assert all(mine + theirs == 24 for (_, mine), (_, theirs) in zip(*(r["computed"] for r in results), strict=True))
