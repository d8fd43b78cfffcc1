"""What `make soak` counts as left behind."""

import importlib.util
import mmap
import os
import pathlib

SOAK = pathlib.Path(__file__).resolve().parents[2] / "scripts/soak.py"


def test_a_soak_counts_every_new_file_that_nobody_uses(tmp_path):
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    (tmp_path / "before").write_text("x")
    before = set(os.listdir(tmp_path))
    for name in ("sm_segment.host.0.1", "torch_1_2_3", "nccl-a", "mapped", "open", f"isochron-{os.getpid()}-a"):
        (tmp_path / name).write_text("x")
    (tmp_path / "isochron-999999999-b").mkdir()
    with open(tmp_path / "mapped", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 1)
    with open(tmp_path / "open"):
        found = soak.left_in(str(tmp_path), before)
    mapped.close()
    assert found == ["isochron-999999999-b", "nccl-a", "sm_segment.host.0.1", "torch_1_2_3"]
