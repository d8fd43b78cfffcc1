"""What goes wrong on one worker and is no matter of the others: errors of one's own."""

from functools import partial

import models
import tensorflow as tf
from running import make_job, raises


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


CASES = {case.__name__: case for case in (own_errors,)}
