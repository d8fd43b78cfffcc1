"""Launchers, with a worker that is killed with SIGKILL in the middle of the run."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from isochron import launch
from ranks import ENVIRONMENT

SCRIPT = pathlib.Path(__file__).with_name("launched.py")


def run(folder, *launcher):
    command = [sys.executable, "-m", *launcher, str(SCRIPT), str(folder)]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    _, workers, _, far = result.stdout.split()
    return int(workers), float(far), result.stderr


def events(folder):
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return [line["event"] for line in lines if line["type"] == "event"], lines


def check_accounting(folder):
    """The program proves from the run log that every sample was used once."""
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    subprocess.run([program, "ledger", folder / "run.jsonl"], check=True, capture_output=True)


def test_under_torchrun_the_job_starts_again_from_what_it_saved(tmp_path):
    workers, far, _ = run(tmp_path, "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
                          "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")  # fmt: skip
    assert workers == 2
    assert far < 1e-9  # where one process ends that was never interrupted
    names, _ = events(tmp_path)
    assert names == ["resume"]
    check_accounting(tmp_path)


def test_under_our_launcher_the_survivor_goes_on(tmp_path):
    workers, far, told = run(tmp_path, "isochron.launch", "-n", "2")
    assert workers == 1
    assert far < 1e-9
    assert "isochron: rank 1 on " in told and "ended by SIGKILL" in told
    names, _ = events(tmp_path)
    assert names == ["death"]
    check_accounting(tmp_path)


def test_bad_usage_is_told_before_anything_is_started(capsys):
    for words, complaint in (
        (["-n", "0", "x.py"], "-n/--workers: '0'; permitted: numbers above 0"),
        (["-n", "2,3", "--node", "2", "--master", "a:1", "x.py"], "--node is 2; permitted: 0 to 1"),
        (["-n", "2,3", "x.py"], "--master is not given; permitted with several hosts: HOST:PORT of the first"),
    ):
        with pytest.raises(SystemExit) as ended:
            launch.main(words)
        assert ended.value.code == 2
        assert complaint in capsys.readouterr().err


def test_places_come_from_the_launchers_variables(alone):
    places = alone.run("places")[0]
    assert places["nothing"] is None
    assert places["torchrun"] == (3, 4, 1, "torchrun", "first", 29400)
    assert places["slurm"][:5] == (5, 8, 1, "slurm", "gpu03")
    assert places["open mpi"][:5] == (1, 2, 1, "open mpi", "127.0.0.1")
    assert places["bad"] == "RANK is 'x'; permitted: a whole number, 0 or more"
