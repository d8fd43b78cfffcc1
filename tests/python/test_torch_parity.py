"""Uneven training ends where single-process training on the same samples ends."""

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
def test_mixed_precision_differs_by_rounding_alone(pair, model):
    """bf16 has 8 bits, and how sums are rounded depends on the shape of a batch: uneven training must be as close to
    single-process training in bf16 as that is to the same in single precision, which it is not without the weights."""
    exact, _ = pair.run("parity", name=model, mode="amp", steps=50, dtype="float32")
    assert exact["relative"] < 1.5 * max(exact["rounding"], 1e-3)
    if model != "resnet18":  # whose rounding hides it: 20 BatchNorm layers over few values
        assert exact["far"] < EXACT
        wrong, _ = pair.run("parity", name=model, mode="amp", steps=50, dtype="float32", weighting="mean")
        assert wrong["relative"] > 3 * exact["relative"]
