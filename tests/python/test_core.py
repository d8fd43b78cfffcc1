"""The native module, without any framework."""

import json
import pathlib
import subprocess
import sys

import pytest

import isochron
from isochron import _core
from ranks import ENVIRONMENT


def controller(**options):
    return _core.Controller([_core.Worker(0), _core.Worker(1, kind="gpu", min_batch=2)], 40, **options)


def test_the_package_says_its_version():
    assert isochron.__version__ == (pathlib.Path(__file__).parents[2] / "VERSION").read_text().strip()


def test_importing_the_package_brings_no_framework_along():
    words = "import sys, isochron; isochron.policies(); print([m for m in ('torch', 'numpy') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_a_worker_without_a_limit_says_so_in_its_signature():
    assert "max_batch: int = NO_LIMIT" in _core.Worker.__init__.__doc__
    assert _core.Worker(0).max_batch == _core.NO_LIMIT


def test_a_controller_learns_and_its_state_goes_on_alike():
    one, other = controller(), controller()
    assert one.decision.batch_sizes == [20, 20] and one.decision.reason == "started"
    one.observe(0, [0, 1], [20, 20], [1.0, 3.0], [1.0, 1.0], [0.1, 0.1])
    # Three times as slow per sample: 40 in the ratio 3 : 1.
    assert one.decision.batch_sizes == [30, 10] and one.decision.changed
    other.restore(one.state())
    assert other.decision.batch_sizes == [30, 10] and other.decision.step == 1
    assert other.state() == one.state()


def test_a_decision_that_is_kept_does_not_change():
    one = controller()
    kept = one.decision
    one.observe(0, [0, 1], [20, 20], [1.0, 3.0], [1.0, 1.0], [0.1, 0.1])
    assert kept.batch_sizes == [20, 20] and kept.step == 0


def test_policies_take_the_programs_options():
    assert controller(policy="static:weights=3/1").decision.batch_sizes == [30, 10]
    names = [policy["name"] for policy in isochron.policies()]
    assert names == ["uniform", "static", "omnilearn", "lb-bsp", "lbb", "dlb", "isochron"]
    with pytest.raises(ValueError, match="policy is 'fastest'; permitted: uniform, static"):
        controller(policy="fastest")
    with pytest.raises(ValueError, match="permitted"):
        controller(rate="cubic")
    with pytest.raises(ValueError, match="unequal lengths"):
        controller().observe(0, [0, 1], [20], [1.0, 1.0], [1.0, 1.0], [0.1, 0.1])


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


def report(sequence, **fields):
    made = _core.IterationReport()
    made.sequence = sequence
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def finished(sequence, **fields):
    return report(sequence, finished=True, batch=4, **{"seconds": 1.0, **fields})


def test_a_coordinator_gives_every_sample_to_one_worker_within_the_bound():
    coordinator = _core.Coordinator([_core.Worker(0), _core.Worker(1)], 8, bound=1, policy="uniform")
    assert coordinator.hear(1, report(0)) == []  # before it has opened
    ((rank, early),) = coordinator.open(0, 20, 7)
    assert (rank, early.first, early.last, early.lead) == (1, 0, 4, 0)
    ((_, first),) = coordinator.hear(0, report(0))
    assert (first.first, first.last, first.batch) == (4, 8, 4)
    ((_, again),) = coordinator.hear(0, finished(1, loss=2.5))
    assert (again.first, again.last, again.iteration, again.lead) == (8, 12, 1, 1)
    (record,) = again.records
    assert (record.step, record.position, record.loss, record.worker.id) == (7, 4, 2.5, 0)
    assert coordinator.hear(0, finished(2)) == [] and coordinator.late == [1]  # it would be 2 ahead
    assert [rank for rank, _ in coordinator.hear(1, finished(1, seconds=3.0))] == [0, 1]
    assert coordinator.hear(0, finished(3, stop=1)) == []  # nothing new is begun
    replies = coordinator.hear(1, finished(2))
    assert [(rank, one.barrier, one.stopping, one.last) for rank, one in replies] == [
        (0, True, True, 20), (1, True, True, 20)]  # fmt: skip
    barrier = replies[0][1]
    other = _core.Coordinator(
        [_core.Worker(0), _core.Worker(1)], 8, bound=None, position=16, state=barrier.controller, policy="uniform"
    )
    other.open(0, 20, 0)
    ((_, after),) = other.hear(0, report(0))
    assert after.decision.step == barrier.decision.step > 0 and after.first == 16
    with pytest.raises(isochron.InvariantError, match="without a claim"):
        other.hear(1, finished(0))


def test_messages_are_bytes_and_other_bytes_are_refused():
    sent = finished(3, loss=float("inf"), non_finite="ü", warm=False)
    got = _core.IterationReport.decode(sent.encode())
    assert (got.sequence, got.loss, got.non_finite, got.warm, got.batch) == (3, float("inf"), "ü", False, 4)
    for bad in (b"", sent.encode()[:-1], sent.encode() + b"x", b"\xff" * 200):
        with pytest.raises(isochron.Error, match="a message cannot be read"):
            _core.IterationReport.decode(bad)


def test_rates_and_clocks_of_updates():
    ledger = _core.ShardLedger("none")

    def push(worker, iteration):
        header = _core.PushHeader()
        header.worker, header.iteration = worker, iteration
        return ledger.take(header).staleness

    pull = _core.PullHeader()
    ledger.pull(pull)
    assert [push(1, 0), push(1, 1), push(0, 0)] == [0, 0, 2]
    assert push(0, 0) == -1 and ledger.updates == 3  # it was there already
    # 6 of the 4 samples that an equal share of 8 among 2 would be; 3 updates of others between.
    assert _core.push_factor("batch-linear+staleness", batch=6, global_batch=8, workers=2, staleness=3) == 1.5 / 4
    assert _core.asynchronous_momentum(0.9, 4) == pytest.approx(0.6)  # 1 - 4 * 0.1
    with pytest.raises(ValueError, match="'fast'; permitted: none, batch-linear"):
        _core.push_factor("fast")


def test_memory_ceilings_fall_and_rise():
    ceilings = _core.MemoryCeilings()
    ceilings.failed(1, 16, 0)
    assert ceilings.limit(1, 1, 100) == 14 and ceilings.limit(0, 1, 100) == 100  # 7/8 of 16
    assert not ceilings.raise_due(49, 100) and ceilings.raise_due(50, 100)
    copy = _core.MemoryCeilings()
    copy.restore(ceilings.state())
    assert copy.limit(1, 1, 100) == ceilings.limit(1, 1, 100) == 15  # up by an eighth of 14


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
