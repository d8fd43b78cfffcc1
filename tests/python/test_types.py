"""The keywords of a job, as a type checker sees them; a check's requirement, so not part of `make test`."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRONG = {
    'isochron.Job(global_batch=8, polcy="isochron")': "polcy",
    'isochron.Job(global_batch="8")': "global_batch",
    'isochron.Job(global_batch=8, last_batch="kept")': "last_batch",
    'isochron.Job(global_batch=8, on_nonfinite="rollback")': "on_nonfinite",
    "job.loader([1, 2], num_worker=2)": "num_worker",
    'job.loader([1, 2], collate="folded")': "collate",
    'other.Job(global_batch=8, polcy="isochron")': "polcy",
    'other.Job(global_batch=8, sync="local")': "sync",
}


def test_a_type_checker_finds_a_wrong_keyword(tmp_path):
    pytest.importorskip("mypy")
    right = ['job = isochron.Job(global_batch=8, log="run.jsonl")', 'job.loader([1], num_workers=2, collate="packed")']
    imports = "import isochron.tensorflow as other; import isochron.torch as isochron"
    (tmp_path / "script.py").write_text("\n".join([imports, *right, *WRONG]) + "\n")
    # PyTorch's own types are many, and not needed for this.
    settings = f"[mypy]\nmypy_path = {ROOT / 'python'}\nfollow_imports = silent\nignore_missing_imports = True\n"
    (tmp_path / "mypy.ini").write_text(settings + "[mypy-torch.*,tensorflow.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", "cache", "script.py"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    found = {int(line): words for line, words in re.findall(r"^script\.py:(\d+): error: (.*)$", told, re.MULTILINE)}
    first = 2 + len(right)
    assert sorted(found) == list(range(first, first + len(WRONG))), told
    for line, name in enumerate(WRONG.values(), first):
        assert f'"{name}"' in found[line], told
