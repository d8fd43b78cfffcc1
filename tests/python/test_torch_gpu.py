"""Jobs with workers on a GPU; skipped where there is none. Those over NCCL need a GPU for each of two workers, or NCCL
2.30 with NCCL_MULTI_RANK_GPU_ENABLE=1, by which workers share one."""

import os
import statistics
import threading

import pytest
import torch

from isochron.torch import nccl_watch
from isochron.torch.stopwatch import Stopwatch, Waits
from isochron.torch.world import choose_backend
from ranks import Ranks

NCCL = "cpu:gloo,cuda:nccl"
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
shares = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" and torch.cuda.is_available()
over_nccl = pytest.mark.skipif(not shares and torch.cuda.device_count() < 2, reason="no two GPUs for NCCL")


@pytest.fixture
def make_ranks(nursery):
    made = []

    def make(*backends):
        made.append(Ranks(nursery, len(backends), backends=backends))
        return made[-1]

    yield make
    for ranks in made:
        ranks.close()


def test_gradients_go_over_nccl_where_every_worker_has_a_gpu_to_itself_or_may_share_it():
    assert choose_backend([("a", False), ("b", False)]) == "nccl"
    assert choose_backend([("a", False), ("a", False)]) == "gloo"
    assert choose_backend([("a", True), ("a", True)]) == "nccl"
    assert choose_backend([("a", True), ("a", False)]) == "gloo"
    assert choose_backend([("a", False), None]) == "gloo"
    assert choose_backend([None, None]) == "gloo"


def test_whoever_aborts_nccl_has_told_the_others_before(monkeypatch):
    """Who receives from an aborted kernel finds the word in the store when it asks, after its own exchange has
    ended."""
    calls, done = [], threading.Event()
    monkeypatch.setattr(nccl_watch, "abort_nccl", lambda: (calls.append("abort"), done.set()))
    looker = nccl_watch.Watch(lambda: "lost rank 1", lambda: "", calls.append, timeout=60.0)
    assert done.wait(30)
    looker.close()
    assert calls == ["lost rank 1", "abort"]


def test_a_wait_counts_once_and_only_until_the_last_own_gradient():
    clock = Stopwatch(Waits(torch.device("cpu")))
    clock.start()
    clock._start, own = 0.0, 10.0
    clock._own = own
    clock._passes = [(4.0, 6.0), (own, 12.0)]  # the reduction after the last gradient is no part of the time
    # Waiting: from 4 to 7, since the exchange from 5 on is partly inside a reduction, and from 9 to 10.
    assert clock.measure([(5.0, 7.0), (9.0, 11.0)]) == (6.0, 4.0, 1)


@on_gpu
def test_workers_on_a_gpu_and_on_cpus_train_like_one_process(make_ranks):
    for rank, result in enumerate(make_ranks(NCCL, "gloo", "gloo").run("mixed")):
        assert result["far"] < 1e-9
        assert result["complete"]
        assert result["sizes"] == [4 * (1 + rank)] * 20
        assert result["gradients"] == result["reports"] == "gloo"


@over_nccl
def test_gpus_over_nccl_and_cpus_over_gloo_that_leaders_join_train_like_one_process(make_ranks):
    for result in make_ranks(NCCL, NCCL, "gloo", "gloo").run("mixed", gpus=2):
        assert result["far"] < 1e-9
        assert result["complete"]
        assert result["sides"]


@over_nccl
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_mixed_job_goes_on_without_a_gpu_or_a_cpu_that_fails(make_ranks, victim):
    ranks = make_ranks(NCCL, NCCL, "gloo", "gloo")
    ranks.start("survive_mixed", gpus=2, how="KILL", victim=victim, when=4, timeout=20.0)
    for rank in range(4):
        if rank != victim:
            result = ranks.result(rank)
            assert result["far"] < 1e-9
            assert result["complete"]
            assert result["members"] == 3


@on_gpu
def test_what_is_dropped_of_a_sample_is_the_same_on_a_gpu(make_ranks):
    assert make_ranks(NCCL).run("dropped") == [True]


@over_nccl
def test_workers_on_gpus_train_like_one_process_over_nccl(make_ranks):
    for rank, result in enumerate(make_ranks(NCCL, NCCL).run("mixed", gpus=2)):
        assert result["far"] < 1e-9
        assert result["complete"]
        assert result["sizes"] == [8 * (1 + rank)] * 20
        assert (result["gradients"], result["statistics"], result["reports"]) == ("nccl", "cuda", "gloo")


@over_nccl
@pytest.mark.parametrize("kind, near", [("float64", 1e-11), ("channels_last", 1e-4), ("bf16", 0.03)])
def test_exact_batch_norm_by_kernels_is_one_batch(make_ranks, kind, near):
    """bf16 has 8 bits: outputs that are rounded from slightly different values differ by one of them."""
    for result in make_ranks(NCCL, NCCL).run("normalised", kind=kind):
        assert result["backend"] == "nccl"
        assert result["far"] < near
        kinds = ("stats", "gather_stats_with_counts", "elemt", "backward_reduce", "backward_elemt")
        assert {f"aten::batch_norm_{kind}" for kind in kinds} <= set(result["kernels"])


@over_nccl
@pytest.mark.parametrize(
    "kind", ["plain", "batch_norm", "two_passes", "two_optimizers", "all_reduce", "fsdp2", "fsdp2_two_passes"]
)
def test_a_worker_that_computes_three_times_as_long_is_seen_so(make_ranks, kind):
    """Whatever it and the other one wait for: the ratio of the cycles is 3, and either waits for the other in every
    reduction. Launches and copies, which are the same for both, make it a little smaller."""
    for times in make_ranks(NCCL, NCCL).run("paced", kind=kind):
        fast = statistics.median(seconds[0] for seconds, _ in times)
        slow = statistics.median(seconds[1] for seconds, _ in times)
        assert 2.7 < slow / fast < 3.1, times


@over_nccl
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_model_trains_as_it_does_without(make_ranks, mode):
    """By mode "reduce-overhead" with a CUDA graph for every batch size."""
    for far in make_ranks(NCCL, NCCL).run("graphed", mode=mode):
        assert far < 1e-4, far


@over_nccl
@pytest.mark.parametrize("how", ["KILL", "STOP", "memory"])
def test_over_nccl_the_others_go_on_without_a_worker_that_fails(make_ranks, record_property, how):
    trio = make_ranks(NCCL, NCCL, NCCL)
    trio.start("survive", how=how, victim=1, when=4, timeout=5.0, device="cuda")
    results = [trio.result(rank) for rank in range(3) if rank != 1 or how == "memory"]
    for result in results:
        assert result["far"] < 1e-9  # where one process ends that nothing happened to
        assert result["complete"]
        assert result["members"] == len(results)
        kind = {"KILL": "death", "STOP": "evicted", "memory": "out-of-memory"}[how]
        assert set(result["events"]) == {(kind, 1)}
        record_property("longest_seconds_between_batches", result["longest"])


@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=on_gpu), pytest.param(NCCL, marks=over_nccl)])
def test_memory_that_runs_out_on_a_gpu_costs_one_worker_its_ceiling_and_nobody_a_sample(make_ranks, backend):
    results = make_ranks(backend, backend).run("starve")
    for result in results:
        assert result["complete"]
        assert [step for step, _ in result["computed"]] == list(range(6))
        assert result["events"] and set(result["events"]) == {("out-of-memory", 1)}
    assert all(batch < 12 for _, batch in results[1]["computed"])
    assert all(mine + theirs == 24 for (_, mine), (_, theirs) in zip(*(r["computed"] for r in results), strict=True))
