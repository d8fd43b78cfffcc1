"""The native module, without any framework."""

import json
import pathlib
import subprocess
import sys

import pytest

import isochron
from isochron import _core
from ranks import ENVIRONMENT


def test_the_package_says_its_version():
    assert isochron.__version__ == (pathlib.Path(__file__).parents[2] / "VERSION").read_text().strip()


def test_importing_the_package_brings_no_framework_along():
    words = "import sys, isochron; isochron.policies(); print([m for m in ('torch', 'numpy') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_a_worker_without_a_limit_says_so_in_its_signature():
    assert "max_batch: int = NO_LIMIT" in _core.Worker.__init__.__doc__
    assert _core.Worker(0).max_batch == _core.NO_LIMIT


def test_the_policies_are_those_of_the_program():
    names = [policy["name"] for policy in isochron.policies()]
    assert names == ["uniform", "static", "omnilearn", "lb-bsp", "lbb", "dlb", "isochron"]


def test_samples_are_dealt_once_and_the_ledger_proves_it():
    sampler = _core.Sampler(23, 10, seed=5)
    ledger = _core.Ledger(sampler.samples_per_epoch)
    used = []
    while sampler.epoch == 0:
        for worker, (first, last) in enumerate(sampler.slices([7, 3])):
            used += sampler.samples(first, last)
            ledger.stage(first, last, worker)
        ledger.commit()
        sampler.advance()
    assert sorted(used) == list(range(23))
    assert ledger.complete and ledger.intervals == [(0, 23)] and ledger.gaps == []
    ledger.stage(0, 2, 1)
    ledger.commit()
    assert not ledger.complete and ledger.duplicates == [(0, 2, 1)]
    with pytest.raises(ValueError, match="positions are 20 to 24"):
        sampler.samples(20, 24)


def test_run_logs_are_read_back(tmp_path):
    path = tmp_path / "run.jsonl"
    settings = _core.JobSettings(policy="uniform", global_batch=10, seed=3)
    about = ("torch", settings, [_core.Worker(0, name="a"), _core.Worker(1, name="b")], 20)
    log = _core.RunLog(path, *about, warn=print, go_on=False)
    log.write(_core.EventRecord(step=1, seconds=1.0, event="death", worker=1, words="b"))
    again = _core.RunLog(path, *about, warn=print, go_on=True)
    assert again.continued
    assert json.loads(path.read_text().splitlines()[1])["event"] == "death"
    with pytest.raises(isochron.Error, match="seed"):
        settings.set("seed", 4)
        _core.RunLog(path, *about, warn=print, go_on=True)
    with pytest.raises(isochron.Error, match="cannot write"):
        _core.RunLog(tmp_path / "no" / "run.jsonl", *about, warn=print, go_on=False)
