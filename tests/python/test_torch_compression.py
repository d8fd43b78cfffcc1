"""Gradients that travel in fewer bytes: exact enough, the same on all workers, and nothing is lost for good."""

import pytest

from torch_compression_cases import SMALL

# Two stages, each of which may owe half a step of 1 / 127 of the largest number, 2.
OWED = 2 * 2 * 0.5 / 127
STEPS = 12


def test_int8_owes_no_more_than_the_rounding_of_a_step(pair):
    first, second = pair.run("small_gradients")
    assert first["sum"] == second["sum"]
    assert first["far"] < OWED < STEPS * SMALL  # without errors that are kept, small numbers would never count


def test_what_rounding_owes_survives_checkpoints(pair, tmp_path):
    first, second = pair.run("small_gradients", restarts=True, folder=str(tmp_path))
    assert first["sum"] == second["sum"]
    assert first["far"] < OWED


def test_what_those_owe_who_stay_is_the_same_among_fewer(trio):
    for result in trio.run("changed_members")[:2]:
        assert result["off"] < 1e-12 < 1e-4 < result["owed"]


def test_an_overflow_is_owed_by_nobody(pair):
    first, second = pair.run("overflow")
    assert first["sum"] == second["sum"]
    assert first["scale"] == 2.0  # once
    assert first["far"] < 2 * OWED  # what was owed when the scale was halved counts twice


def test_int8_goes_on_with_those_who_are_left(trio):
    trio.start("small_gradients", victim=1)
    first, second = [trio.result(rank) for rank in (0, 2)]
    assert first["sum"] == second["sum"]
    assert first["far"] < 2 * OWED  # that of the lost one is lost with it


def test_a_step_that_does_not_happen_leaves_nothing_behind(pair):
    for result in pair.run("small_gradients", spoil=5):
        assert result["far"] < OWED


@pytest.mark.parametrize(("compression", "most"), [("int8", 0.02), ("bf16", 0.02)])
def test_compressed_gradients_get_the_weights_of_unequal_shares(pair, compression, most):
    first, second = pair.run("compressed", compression=compression)
    assert 0 < first["far"] < most
    assert first["sum"] == second["sum"]
