"""The duel of gradients, with real processes: Isochron's is that of one process, DDP's is not."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_with_unequal_batches_isochron_is_exact_and_ddp_is_not(tmp_path):
    result = tmp_path / "gradient.json"
    duel = [sys.executable, ROOT / "benchmarks/peers/run.py", "gradient"]
    command = [*duel, "--peers", "isochron,ddp", "--json", result, "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(row["peer"], row["variant"]): row["relative_error"] for row in json.loads(result.read_text())["rows"]}
    assert found["isochron", ""] < 1e-12
    assert found["ddp", "loss weighted by hand"] < 1e-12
    assert found["ddp", ""] > 0.1
