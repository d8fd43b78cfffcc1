"""Checkpoints of Lightning and Accelerate: a new job goes on from them, and the ledger proves it."""

import importlib.util
import json
import os
import subprocess

import pytest

from loop_cells import SIZE, STEPS


@pytest.mark.parametrize("package", ["accelerate", "lightning"])  # Transformers': test_loop, resume_from_checkpoint
def test_a_new_job_goes_on_from_a_checkpoint_of(package, pair, alone, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    ((whole,),) = alone.run(f"torch_resume_cases:with_{package}", folder=str(tmp_path / "whole"), half=False)
    assert whole["step"] == STEPS and whole["complete"]
    results = pair.run(f"torch_resume_cases:with_{package}", folder=str(tmp_path / "parts"), half=True)
    for half, rest in results:
        assert (half["step"], half["complete"]) == (STEPS // 2, False)
        assert (rest["step"], rest["complete"]) == (STEPS, True)
        assert rest["weights"] == pytest.approx(whole["weights"], abs=1e-10)
    assert sorted(number for parts in results for part in parts for number in part["seen"]) == list(range(SIZE))
    log = tmp_path / "parts" / "run.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["step"] for record in records if record["type"] == "step"] == list(range(STEPS))
    if program := os.environ.get("ISOCHRON_PROGRAM"):
        done = subprocess.run([program, "ledger", log], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "Proven: every sample of the finished epoch was used exactly once."
