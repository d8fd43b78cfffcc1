"""The step protocol as Python sees it: replicas in one process, whose reports travel in single precision."""

import array
import json

import pytest

from isochron import _core
from step_reports import measured


def options(**more):
    return _core.JobSettings(global_batch=8, policy="uniform", **more)


def workers(count):
    return [_core.Worker(0, name=f"w{rank}") for rank in range(count)]


def job(count, dataset_size=24, **more):
    replicas = [_core.Replica(options(**more), workers(count), rank) for rank in range(count)]
    for replica in replicas:
        replica.open(dataset_size)
    return replicas


def gather(reports):
    """As an all-gather of 32-bit floats."""
    return _core.read_reports(list(array.array("f", [number for report in reports for number in report.numbers()])))


def step(replicas, **fields):
    for replica in replicas:
        replica.plan()
    reports = gather(
        [replica.report(measured(seconds=1.0, loss=rank, **fields)) for rank, replica in enumerate(replicas)]
    )
    return [replica.complete(reports, 2.0, 3.0) for replica in replicas]


def come_together(replicas):
    reports = [_core.ProgressReport.decode(replica.progress(4.0).encode()) for replica in replicas]
    settlement = _core.settle(reports)
    records = [replica.finish_unreported(settlement, 4.0) for replica in replicas]
    for rank in settlement.behind:
        replicas[rank].take_over(replicas[settlement.leader].state())
    return [replica.adopt(settlement, rank, 4.0) for rank, replica in enumerate(replicas)], records


def test_a_step_is_planned_reported_and_completed():
    replicas = job(2)
    plan = replicas[1].plan()
    assert (plan.step, plan.epoch, plan.position, plan.step_size) == (0, 0, 0, 8)
    assert plan.slices == [(0, 4), (4, 8)] and plan.mine == (4, 8) and plan.batch == 4 and plan.loss_weight == 1.0
    assert plan.decision.batch_sizes == plan.batches == [4, 4]
    assert replicas[1].phase == "computing"
    replicas[1].abandon()
    outcome = step(replicas)[0]
    assert outcome.loss == 0.5 and outcome.record.loss == 0.5 and not outcome.stop
    assert [worker.batch for worker in outcome.record.workers] == [4, 4]
    assert json.loads(outcome.record.to_json())["step"] == 0
    assert replicas[0].ledger.used == 8 and replicas[0].last_step.step == 0


def test_a_report_keeps_every_bit_in_single_precision():
    report = _core.StepReport()
    report.start, report.batch, report.digest = 86400.0 + 2**-36, 2**48 + 1, 2**64 - 1
    for numbers in (report.numbers(), report.to_bytes()):
        (back,) = _core.read_reports(numbers)
        assert (back.start, back.batch, back.digest) == (report.start, report.batch, report.digest)
    assert len(report.numbers()) == _core.REPORT_NUMBERS
    with pytest.raises(_core.Error, match="the field batch of a report arrived as 0.5"):
        _core.read_reports([0.5, *report.numbers()[1:]])


def test_usage_is_handed_over_as_a_whole():
    began = _core.cpu_seconds()
    usage = _core.process_usage(began, 1.0)
    assert 0.0 <= usage.cpu <= 1.0 and 0.0 < usage.memory <= usage.peak_memory < 1.0
    (replica,) = job(1)
    replica.plan()
    report = replica.report(measured(seconds=0.5, usage=usage))
    figures = [name for name in dir(usage) if not name.startswith("_")]
    assert report.usage.memory == usage.memory
    assert figures and all(getattr(report, name) == getattr(usage, name) for name in figures)
    record = replica.complete([report], 0.5, 0.5).record
    assert record.workers[0].peak_memory == usage.peak_memory


def test_a_foreign_digest_is_an_error_that_names_the_rank():
    replicas = job(3)
    for replica in replicas:
        replica.plan()
    reports = gather([replica.report(_core.StepReport()) for replica in replicas])
    reports[2].digest ^= 1
    with pytest.raises(_core.Error, match="rank 2 does not agree with rank 0"):
        replicas[0].complete(reports, 0.0, 0.0)


def test_a_call_out_of_order_says_what_to_do():
    (replica,) = job(1)
    with pytest.raises(_core.OrderError, match="take the next batch"):
        replica.report(_core.StepReport())
    replica.plan()
    with pytest.raises(RuntimeError, match="the batch of step 0 is out"):
        replica.plan()


def test_a_lack_of_memory_deals_the_same_step_anew():
    replicas = job(2)
    for replica in replicas:
        replica.plan()
    reports = gather([replica.report(measured(out_of_memory=replica.rank == 1)) for replica in replicas])
    verdict = replicas[0].judge(reports, True)
    assert verdict.action == "redo" and verdict.ranks == [1]
    for replica in replicas:
        (event,) = replica.redo(reports, 1.0)
        assert (event.event, event.worker, event.words) == ("out-of-memory", 1, "with 4 samples")
        assert replica.plan().batches == [5, 3] and replica.step == 0


def test_a_death_and_a_join_are_settled_alike_on_all():
    replicas = job(3)
    step(replicas)
    for replica in replicas:
        replica.plan()
        replica.report(_core.StepReport())
    replicas[0].abandon()  # did not get the average; the second one's optimizer has taken the step
    late = _core.Replica.newcomer(options(), _core.Worker(0, name="late"))
    late.open(24)
    left = [replicas[0], replicas[1], late]
    events, records = come_together(left)
    assert [(one.event, one.worker) for one in events[2]] == [("death", 2), ("join", 3)]
    assert records[0] is None and records[1].step == 1
    assert {replica.step for replica in left} == {2}
    assert len({replica.state() for replica in left}) == 1
    assert [worker.id for worker in late.workers] == [0, 1, 3]


def test_the_first_step_with_a_size_tells_nothing_of_a_gpu():
    warm = {}
    for cpu in (True, False):
        replica = _core.Replica(options(), workers(1), 0, cpu=cpu)
        replica.open(20)
        warm[cpu] = []
        for _ in range(5):  # of 8, 8, 4, 8 and 8 samples
            replica.plan()
            report = replica.report(_core.StepReport())
            warm[cpu].append(report.warm)
            replica.complete([report], 0.0, 0.0)
    assert warm == {True: [True] * 5, False: [False, True, False, True, True]}


def test_a_state_goes_on_with_another_number_of_workers():
    replicas = job(2)
    step(replicas)
    (alone,) = job(1)
    alone.restore(replicas[0].state())
    assert alone.step == 1 and alone.plan().slices == [(8, 16)]
    other = _core.Replica(_core.JobSettings(global_batch=9, policy="uniform"), workers(1), 0)
    with pytest.raises(ValueError, match="global_batch is 9; permitted: that of the checkpoint, 8"):
        other.restore(replicas[0].state())


def test_workers_that_do_not_share_an_option_are_refused():
    one = _core.Introduction({"seed": "1"}, _core.Worker(0, kind="gpu"))
    other = _core.Introduction.decode(_core.Introduction({"seed": "2"}, _core.Worker(0)).encode())
    assert [(worker.id, worker.name) for worker in _core.agree([one, one])] == [(0, "worker-0"), (1, "worker-1")]
    with pytest.raises(ValueError, match="seed is 2 on rank 1; permitted: what rank 0 has, 1"):
        _core.agree([one, other])
    assert _core.objection(one, one) == "" and "the newcomer" in _core.objection(other, one)


def test_options_are_names():
    for name in ("weighting", "last_batch", "on_nonfinite", "lr_rule"):
        with pytest.raises(ValueError, match="permitted"):
            options(**{name: "nonsense"})


def test_records_go_into_the_run_log_as_they_are(tmp_path):
    replicas = job(1)
    about = ("torch", options(), replicas[0].workers, 24)
    log = _core.RunLog(tmp_path / "run.jsonl", *about, warn=print, go_on=False)
    record = step(replicas)[0].record
    log.write(record)
    (event,) = replicas[0].roll_back(replicas[0].state(), "why", 5.0)
    log.write(event)
    again = _core.RunLog(tmp_path / "run.jsonl", *about, warn=print, go_on=True)
    assert again.continued and again.next_step == 1
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert lines[1]["batch_sizes"] == record.batch_sizes == [8] and record.balance == 1.0
    assert [line["type"] for line in lines] == ["run", "step", "event"]
    assert lines[2]["event"] == _core.Event.ROLLBACK == "rollback"
