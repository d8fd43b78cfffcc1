"""What goes wrong on one worker and is no matter of the others: errors of one's own, a log that cannot be written."""

import logging
import resource
from functools import partial

import models
import tensorflow as tf
from running import make_job, make_train, raises

import isochron as isochron_runs


def own_errors(folder):
    """One that sounds like a lost worker stays what it is, while all workers answer."""
    job = make_job()
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    batch = next(iter(job.dataset(samples)))

    @job.step
    def train(x, y):
        raise tf.errors.UnavailableError(None, None, "the user's own server is not there")

    raises(tf.errors.UnavailableError, "the user's own server is not there", partial(train, *batch))
    assert job.sum([1.0]) == [job.size]  # all are still there
    job.close()


def listen():
    said = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("isochron").addHandler(listener)
    return said, listener


def full_log(folder):
    """No line can be written for three steps, as on a full disk: the first worker says so, and the log does later."""
    log = folder / "full.jsonl"
    job = make_job(log=log)
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    said, listener = listen()
    for batch in job.dataset(samples):
        if job.rank == 0 and job.step_number in (2, 5):
            room = log.stat().st_size + 8 if job.step_number == 2 else most[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, most[1]))
        train(*batch)
        if job.step_number == 7:
            break
    job.close()
    logging.getLogger("isochron").removeHandler(listener)
    if job.rank > 0:
        return
    trouble, end = (words for words in said if "log" in words)
    assert "File too large; the run goes on, and the log when it can be written again" in trouble, said
    words = "3 lines could not be written at once, and 0 of them are missing here"
    assert words in end, said
    run = isochron_runs.read_run(log)
    assert [record["step"] for record in run.step_records] == list(range(7))
    (event,) = run.event_records
    assert event["event"] == "unlogged" and words in event["words"], event


def no_log(folder):
    """The log cannot be begun any more when the first step is done: the first worker says so once, and goes on."""
    log = folder / "no_log" / "run.jsonl"
    log.parent.mkdir(exist_ok=True)
    job = make_job(log=log)
    if job.rank == 0:
        log.parent.rmdir()
    model, samples = models.make("mlp")
    optimizer = models.momentum()
    job.prepare(model, optimizer)
    train = make_train(job, model, optimizer)
    said, listener = listen()
    for batch in job.dataset(samples):
        train(*batch)
    assert job.epoch == 1 and job.ledger.complete, job
    job.close()
    logging.getLogger("isochron").removeHandler(listener)
    words = [f"cannot write run log {log}: No such file or directory; the run goes on without a log"]
    assert [one for one in said if "log" in one] == (words if job.rank == 0 else []), said


CASES = {case.__name__: case for case in (own_errors, full_log, no_log)}
