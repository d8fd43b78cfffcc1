"""The matrix of loops: every cell of loop_cells.py on two processes, one slow, against one process."""

import importlib.util
import pathlib
import statistics

import pytest
import torch

import loop_cells
import loop_document

PACKAGES = {"lightning": "lightning", "accelerate": "accelerate", "transformers": "transformers"}


THREE = ("torch-two_losses-job.weight", "torch-retain_graph-job.backward", "torch-GAN-FSDP2")
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "loops.md"


def test_the_document_lists_these_cells():
    """If not: .venv/bin/python scripts/loops.py"""
    assert len(loop_cells.CELLS) >= 40
    assert DOCUMENT.read_text() == loop_document.with_table(DOCUMENT.read_text())


def test_the_rows_of_native_loops_name_tests():
    there = loop_document.native_tests()
    assert {test for _, test, *_ in loop_document.NATIVE} - there == set()


@pytest.mark.parametrize("name", loop_cells.CELLS)
def test_loop(name, pair, alone, tmp_path):
    cell = loop_cells.CELLS[name]
    for package in (PACKAGES.get(cell.framework), cell.needs):
        if package and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / "alone").mkdir()
    (single,) = alone.run("loop_cells:run_cell", name=name, slow=False, folder=str(tmp_path / "alone"))
    follows = told_apart = False  # in some turn
    turns = []
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        both = pair.run("loop_cells:run_cell", name=name, slow=True, folder=str(folder))
        check_parity(cell, single, both)
        check_samples(cell, single, both)
        turns.append((both[0]["splits"], both[0]["seconds"]))
        follows = follows or loop_cells.follows(both[0]["splits"])
        told_apart = told_apart or tells_apart(both[0]["seconds"])
        if follows and told_apart:
            return
    raise AssertionError((follows, told_apart, turns))


def tells_apart(seconds):
    """Whether the clock has found most of the difference in speed, which is 4. One that took waiting for computing
    would say that workers with equal shares are equally fast. Other work only adds to what a sample takes: the quarter
    of the steps with the least has little of it."""
    fast, slow = (statistics.quantiles([one for one in column if one], n=4)[0] for column in zip(*seconds, strict=True))
    return slow > 2.5 * fast


def test_a_tiny_model_keeps_nearly_equal_shares_and_says_why(pair):
    """But for a few steps, in which other work on the machine looks like a change of speed."""
    for _ in range(3):
        found = pair.run("model_cells:constant_time")
        near = [all(16 <= size <= 48 for size in split) for split in found[0]["splits"]]
        if sum(near) >= 30 and any("equal shares" in words for words in found[0]["words"][-10:]):
            return
    raise AssertionError(found[0])


def test_loops_on_three_processes(trio, alone, tmp_path):
    for name in THREE:
        folder = tmp_path / name
        folder.mkdir()
        (single,) = alone.run("loop_cells:run_cell", name=name, slow=False, folder=str(folder))
        for _ in range(3):
            all_three = trio.run("loop_cells:run_cell", name=name, slow=True, folder=str(folder))
            check_parity(loop_cells.CELLS[name], single, all_three)
            check_samples(loop_cells.CELLS[name], single, all_three)
            fast, slow = (sum(split[rank] for split in all_three[0]["splits"][5:10]) for rank in (0, 1))
            if fast > 1.5 * slow:
                break
        assert fast > 1.5 * slow, (name, all_three[0]["splits"])


def check_parity(cell, single, both):
    """The parameters and the logged losses that one process has after the same steps."""
    assert all(one["weights"] == both[0]["weights"] for one in both)
    assert all(loss == loss for loss in both[0]["losses"])
    if cell.parity == loop_cells.OWN_ORDER:
        single = {**single, **loop_cells.replay(both)}
    assert both[0]["losses"] == pytest.approx(single["losses"], rel=1e-10)
    mine, theirs = (torch.tensor(one["weights"], dtype=torch.float64) for one in (both[0], single))
    far = (mine - theirs).abs().max().item()
    assert len(both[0]["splits"]) == len(single["splits"])
    assert far < 1e-10, far


def check_samples(cell, single, both):
    """Each that one process uses is used once, by one of the two."""
    seen = sorted(tuple(use) for one in both for use in one["seen"])
    assert seen == sorted(tuple(use) for use in single["seen"])
    if cell.once == "yes":
        assert len(set(seen)) == len(seen)
