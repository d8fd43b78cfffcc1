"""A training script for the tests of launchers: launched.py FOLDER VICTIM. The victim kills itself in step 5 unless a
checkpoint is there, which the others then leave, so that whoever is started again goes on."""

import os
import pathlib
import signal
import sys

import models
import numpy as np
import running

import isochron.tensorflow as isochron

folder, victim = pathlib.Path(sys.argv[1]), int(sys.argv[2])
job = running.make_job()
model, samples = models.make("mlp", seed=3 + job.rank)
optimizer = models.momentum()
job.prepare(model, optimizer)
again = job.has_checkpoint(folder / "saved")
if again:
    job.restore(folder / "saved")
train = running.make_train(job, model, optimizer)
try:
    for _ in job.epochs(2):
        for x, y in job.dataset(samples):
            if (job.rank, job.step_number) == (victim, 5) and not again:
                os.kill(os.getpid(), signal.SIGKILL)
            train(x, y)
except isochron.PeerLostError:
    job.save(folder / "saved")
    raise
assert "torch" not in sys.modules and job.ledger.complete
np.savez(folder / f"{victim}.{job.rank}.npz", *model.get_weights(), counted=[job.size, job.step_number])
job.close()
