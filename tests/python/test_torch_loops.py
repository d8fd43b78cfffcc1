"""The matrix of loops: every cell of loop_cells.py on two processes, one slow, against one process."""

import importlib.util
import pathlib

import pytest
import torch

import loop_cells

PACKAGES = {"lightning": "lightning", "accelerate": "accelerate", "transformers": "transformers"}


THREE = ("torch-two_losses-job.weight", "torch-retain_graph-job.backward", "torch-GAN-FSDP2")
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "loops.md"


def test_the_document_lists_these_cells():
    """If not: .venv/bin/python scripts/loops.py"""
    assert len(loop_cells.CELLS) >= 40
    assert DOCUMENT.read_text() == loop_cells.with_table(DOCUMENT.read_text())


@pytest.mark.parametrize("name", loop_cells.CELLS)
def test_loop(name, pair, alone, tmp_path):
    cell = loop_cells.CELLS[name]
    for package in (PACKAGES.get(cell.framework), cell.needs):
        if package and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / "alone").mkdir()
    (single,) = alone.run("loop_cells:run_cell", name=name, slow=False, folder=str(tmp_path / "alone"))
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        both = pair.run("loop_cells:run_cell", name=name, slow=True, folder=str(folder))
        check_parity(cell, single, both)
        check_samples(cell, single, both)
        if loop_cells.follows(both[0]["splits"]):
            return
    raise AssertionError(both[0]["splits"])


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
    if cell.parity != "1e-10":
        return
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
