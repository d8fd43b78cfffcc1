"""Several optimizers, one after the other in a step, of which a worker is lost in between."""

import pytest


@pytest.mark.parametrize("how", ["kill", "memory"])
def test_a_step_of_a_gan_that_ends_between_its_optimizers_takes_each_of_them_once(trio, alone, how):
    (single,) = alone.run("torch_adversary_cases:adversaries")
    trio.start("torch_adversary_cases:adversaries", how=how, victim=1)
    both = [trio.result(rank) for rank in ((0, 2) if how == "kill" else range(3))]
    for one in both:
        assert len(one["splits"]) == len(single["splits"])
        assert one["weights"] == both[0]["weights"]
        assert one["weights"] == pytest.approx(single["weights"], abs=1e-10)
