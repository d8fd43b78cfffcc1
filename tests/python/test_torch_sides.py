"""Jobs with workers on GPUs and on CPUs average each side by itself, and leaders join the two. Here gloo stands in for
NCCL, and the sides are told; test_torch_gpu.py has them with a GPU."""

import pytest

from isochron.torch.sides import sides_of
from isochron.torch.world import choose_backend
from ranks import Ranks


@pytest.fixture
def make_ranks(nursery):
    made = []

    def make(size):
        made.append(Ranks(nursery, size))
        return made[-1]

    yield make
    for ranks in made:
        ranks.close()


def by_nccl(gpus):
    return choose_backend(gpus) == "nccl"


def test_a_job_has_two_sides_where_nccl_takes_several_of_its_gpus_and_some_workers_have_none():
    assert sides_of([("a", False), ("b", False), None], by_nccl) == ["gpu", "gpu", "cpu"]
    assert sides_of([None, ("a", True), None, ("a", True)], by_nccl) == ["cpu", "gpu", "cpu", "gpu"]
    assert sides_of([("a", False), ("a", False), None], by_nccl) is None
    assert sides_of([("a", False), None, None], by_nccl) is None
    assert sides_of([("a", False), ("b", False)], by_nccl) is None
    assert sides_of([None, None], by_nccl) is None


@pytest.mark.parametrize("sides", ["aabb", "abab", "aab", "abb"])
def test_sides_that_leaders_join_train_like_one_process(make_ranks, sides):
    for rank, result in enumerate(make_ranks(len(sides)).run("sided", sides=sides)):
        assert result["far"] < 1e-10
        mine = sides.count(sides[rank])
        sizes = {mine} - {1} | ({2} if sides.index(sides[rank]) == rank else set())
        assert set(result["counts"]) == sizes  # gradients never go over all of the job


def test_sides_accumulate_and_a_second_job_finds_its_groups(make_ranks):
    for result in make_ranks(3).run("sided", sides="aab", accumulate=2, jobs=2):
        assert result["far"] < 1e-10


@pytest.mark.parametrize("how", ["KILL", "hook"])
@pytest.mark.parametrize("sides, victim", [("aabb", 2), ("aabb", 3), ("aab", 1), ("aab", 2), ("abb", 1)])
def test_the_others_go_on_without_a_leader_one_that_follows_or_a_whole_side(make_ranks, sides, victim, how):
    """Lost before BatchNorm's exchange and, by "hook", before that of the gradients."""
    ranks = make_ranks(len(sides))
    ranks.start("survive_on_sides", sides=sides, how=how, victim=victim, when=4, timeout=120.0)
    for rank in range(len(sides)):
        if rank != victim:
            result = ranks.result(rank)
            assert result["far"] < 1e-10
            assert result["complete"]
            assert result["members"] == len(sides) - 1
            assert set(result["events"]) == {("death", victim)}
            assert result["longest"] < 60.0
