"""Uneven training ends where single-process training on the same samples ends."""

import functools

import pytest

EXACT = 1e-5


@pytest.mark.parametrize("mode", ["plain", "ddp", "fsdp2", "accumulate", "compile"])
@pytest.mark.parametrize("model", ["cnn", "resnet18", "gpt2", "lstm"])
def test_uneven_equals_single_process(pair, model, mode):
    first, second = pair.run("parity", name=model, mode=mode, steps=50)
    assert first["went"] > 100 * EXACT  # else the comparison would say nothing
    assert first["far"] < EXACT
    assert first["sizes"] == [8] and second["sizes"] == [16]  # 24 in the ratio 1 : 2
    assert first["sum"] == second["sum"]


def test_without_weighting_it_does_not(pair):
    assert pair.run("parity", name="cnn", steps=50, weighting="mean")[0]["far"] > 100 * EXACT


@pytest.mark.parametrize("model", ["cnn", "resnet18", "gpt2", "lstm"])
def test_mixed_precision_equals_single_process(pair, model):
    """bf16 has 8 bits, and how a product is rounded depends on its shape, which ResNet-18's 20 BatchNorm layers make
    another training of within a few steps. So the single process computes share by share; a step of the whole batch at
    once must be the same but for rounding."""
    run = functools.partial(pair.run, "parity", name=model, mode="amp", dtype="float32")
    exact, _ = run(steps=50, by_shares=True)
    assert exact["went"] > 100 * EXACT
    assert exact["far"] < EXACT
    step, _ = run(steps=1)
    wrong, _ = run(steps=1, weighting="mean")
    assert step["relative"] < 0.005 < 0.05 < wrong["relative"]
