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


def test_a_dispatcher_gives_every_sample_to_one_worker_within_the_bound():
    dispatcher = _core.Dispatcher([_core.Worker(0), _core.Worker(1)], 8, bound=1, policy="uniform")
    dispatcher.open(20)
    dispatcher.ask(0)
    dispatcher.ask(1)
    first, second = dispatcher.take_orders()
    assert [(one.worker, one.first, one.last, one.lead) for one in (first, second)] == [(0, 0, 4, 0), (1, 4, 8, 0)]
    assert dispatcher.finish(0, 4, 1.0, 1.0, 0.1) == (0, 4)
    dispatcher.ask(0)
    (again,) = dispatcher.take_orders()
    assert (again.first, again.last, again.iteration, again.lead) == (8, 12, 1, 1)
    dispatcher.finish(0, 4, 1.0, 1.0, 0.1)
    dispatcher.ask(0)
    assert dispatcher.take_orders() == [] and not dispatcher.meeting  # it would be 2 ahead
    dispatcher.finish(1, 4, 3.0, 1.0, 0.1)
    assert [one.worker for one in dispatcher.take_orders()] == [0]
    assert dispatcher.slowest == 1 and dispatcher.position == 16
    dispatcher.close()  # nothing new is begun
    dispatcher.finish(0, 4, 1.0, 1.0, 0.1)
    dispatcher.ask(0)
    dispatcher.ask(1)
    assert dispatcher.take_orders() == [] and dispatcher.meeting and dispatcher.position == 16
    dispatcher.dismiss()
    other = _core.Dispatcher(
        [_core.Worker(0), _core.Worker(1)], 8, bound=None, position=16, state=dispatcher.state(), policy="uniform"
    )
    assert other.decision.step == dispatcher.decision.step > 0 and other.position == 16
    with pytest.raises(isochron.InvariantError, match="without a claim"):
        other.finish(0, 4, 1.0, 1.0, 0.1)


def test_rates_and_clocks_of_updates():
    clocks = _core.ClockTable()
    clocks.join(0)
    clocks.join(1)
    clocks.pull(0)
    assert [clocks.push(1), clocks.push(1), clocks.push(0)] == [0, 0, 2]
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
    about = {"policy": "uniform", "global_batch": 10, "seed": 3, "samples_per_epoch": 20, "model": "", "dataset": "",
             "workers": [(0, "a", "cpu"), (1, "b", "cpu")]}  # fmt: skip
    log = _core.RunLog(path, **about, go_on=False)
    shares = [(0, 4, 0.0, 0.9, 0.1, 0.0), (1, 6, 0.0, 1.0, 0.0, 0.0)]
    log.step(step=0, epoch=0, position=0, start=0.0, seconds=1.0, workers=shares, learning_rate_factor=1.0,
             changed=False, reason="kept", words="", loss=2.0)  # fmt: skip
    log.event(step=1, seconds=1.0, event="death", worker=1, words="b")
    again = _core.RunLog(path, **about, go_on=True)
    assert again.continued and again.next_step == 1
    run = isochron.read_run(path)
    assert run.step_records[0]["batch_sizes"] == [4, 6]
    assert json.loads(path.read_text().splitlines()[2])["event"] == "death"
    with pytest.raises(isochron.Error, match="seed"):
        _core.RunLog(path, **{**about, "seed": 4}, go_on=True)
    with pytest.raises(isochron.Error, match="cannot write"):
        _core.RunLog(tmp_path / "no" / "run.jsonl", **about, go_on=False)
