"""Cells of the step protocol by itself (core/replica): replicas in one process, without framework or sockets."""

from isochron import _core
from step_reports import measured

STEPS, BATCH, WHEN = 6, 8, 2


def options():
    return _core.JobSettings(global_batch=BATCH, policy="uniform")


class Job:
    """Replicas and who of them took the step under way."""

    def __init__(self, count):
        self.replicas = [_core.Replica(options(), [_core.Worker(0, name=f"w{rank}") for rank in range(count)], mine)
                         for mine in range(count)]  # fmt: skip
        for replica in self.replicas:
            replica.open(STEPS * BATCH)

    def plan(self):
        for replica in self.replicas:
            replica.plan()

    def report(self, **of_last):
        last = self.replicas[-1]
        return [replica.report(measured(seconds=1.0, **(of_last if replica is last else {})))
                for replica in self.replicas]  # fmt: skip

    def complete(self, reports):
        return [replica.complete(reports, 2.0, 3.0) for replica in self.replicas]

    def settle(self, newcomers=()):
        """Those who are left, and newcomers, come together; who has no average abandons its step first."""
        self.replicas += newcomers
        reports = [_core.ProgressReport.decode(replica.progress(4.0).encode()) for replica in self.replicas]
        settlement = _core.settle(reports)
        for replica in self.replicas:
            replica.finish_unreported(settlement, 4.0)
        for rank in settlement.behind:
            self.replicas[rank].take_over(self.replicas[settlement.leader].state())
        return [replica.adopt(settlement, rank, 4.0) for rank, replica in enumerate(self.replicas)]

    def lose(self, fault):
        """Removes whom the fault takes; says how many."""
        gone = {"kill": [-1], "kill-first": [0], "kill-two": [0, -1]}[fault]
        for index in sorted(gone, reverse=True):
            del self.replicas[index]
        return len(gone)

    def abandon(self):
        for replica in self.replicas:
            if replica.phase != "between":
                replica.abandon()


def newcomer():
    late = _core.Replica.newcomer(options(), _core.Worker(0, name="late"))
    late.open(STEPS * BATCH)
    return late


def strike(job, phase, fault):
    """The step under way when the fault strikes; returns how many workers there are afterwards."""
    before = len(job.replicas)
    if phase == "join":  # a newcomer, and a loss before all have settled
        job.replicas.append(newcomer())
        lost = job.lose(fault)
        job.settle()
        return before + 1 - lost
    if phase in ("checkpoint", "evaluation"):  # between two steps; a checkpoint is what goes on
        state = job.replicas[0].state()
        lost = job.lose(fault)
        if phase == "checkpoint":
            count = len(job.replicas)
            job.replicas = Job(count).replicas
            for replica in job.replicas:
                replica.restore(state)
            return count
        job.settle()
        return before - lost
    job.plan()
    if phase == "step":
        lost = job.lose(fault)
        job.abandon()
    elif phase == "leave":
        for replica in job.replicas:
            replica.report(measured(seconds=1.0, stop=True))
        lost = job.lose(fault)
        job.abandon()
    else:
        job.report()
        lost = job.lose(fault)
        if phase == "reduction":
            job.abandon()
        elif len(job.replicas) > 1:  # the optimizer of one of them has taken the step, the others have not
            for replica in job.replicas[1:]:
                replica.abandon()
    job.settle()
    return before - lost


def tried(phase, fault):
    """Runs the job; raises AssertionError where it does not hold what is promised."""
    job = Job(4)
    when = STEPS - 1 if phase == "end" else WHEN
    expected = 4
    while job.replicas[0].step < STEPS:
        if job.replicas[0].step == when and expected == 4:
            when = -1
            if fault == "memory":
                job.plan()
                reports = job.report(out_of_memory=True)
                assert all(replica.judge(reports, True).action == "redo" for replica in job.replicas)
                for replica in job.replicas:
                    replica.redo(reports, 1.0)
            elif fault == "behind":  # the last one's reports are lost: it is told by the others
                job.plan()
                reports = job.report()
                for replica in job.replicas[:-1]:
                    replica.complete(reports, 2.0, 3.0)
                if phase == "step":
                    job.replicas[-1].abandon()
                job.settle()
            else:
                expected = strike(job, "step" if phase == "end" else phase, fault)
            continue
        job.plan()
        job.complete(job.report())
    assert len(job.replicas) == expected
    assert len({replica.state() for replica in job.replicas}) == 1
    assert all(replica.ledger.complete for replica in job.replicas)
