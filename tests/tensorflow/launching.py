"""`python -m isochron.launch` where there is no torch, and `isochron launch`, with TensorFlow's workers."""

import os
import pathlib
import subprocess
import sys

import models
import numpy as np
import parity

SCRIPT = pathlib.Path(__file__).with_name("launched.py")
LAUNCHER = [sys.executable, "-m", "isochron.launch", "-n", "2"]
NOBODY = -1


def launch(launcher, folder, victim):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*launcher, str(SCRIPT), str(folder), str(victim)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def check_trained(folder, victim):
    """Both workers ended where one process does that was never interrupted."""
    reference, samples = models.make("mlp")
    reference.compile(optimizer=models.momentum(), loss=models.loss_function())
    steps = 2 * -(-models.SAMPLES // parity.BATCH)
    for _, (x, y) in zip(range(steps), parity.reference_batches(samples), strict=False):
        reference.train_on_batch(x, y)
    for rank in range(2):
        with np.load(folder / f"{victim}.{rank}.npz") as saved:
            assert saved["counted"].tolist() == [2, steps], saved["counted"]
            mine = [saved[f"arr_{place}"] for place in range(len(reference.get_weights()))]
        far = max(float(np.abs(a - b).max()) for a, b in zip(mine, reference.get_weights(), strict=True))
        assert far <= parity.TOLERANCE, far


def launched(folder):
    """Two workers under our launcher, in an environment without torch."""
    done = launch(LAUNCHER, folder, NOBODY)
    assert done.returncode == 0, done.stderr
    check_trained(folder, NOBODY)


def launched_loss(folder):
    """A worker is killed: the launcher says so, the other one names it, saves and ends, since TensorFlow's collectives
    have ended; the launcher returns what killed the first. The same command then goes on to the undisturbed result."""
    lost = launch(LAUNCHER, folder, 1)
    assert lost.returncode == 128 + 9, (lost.returncode, lost.stderr)
    assert "isochron: rank 1 on " in lost.stderr and "ended by SIGKILL" in lost.stderr, lost.stderr
    assert "PeerLostError" in lost.stderr and "task 1 on " in lost.stderr, lost.stderr
    again = launch(LAUNCHER, folder, 1)
    assert again.returncode == 0, again.stderr
    check_trained(folder, 1)


def program_launched(folder):
    """Under `isochron launch`, on an emulated cluster whose second worker has a third of the speed."""
    cluster = folder / "cluster.toml"
    cluster.write_text("[[worker]]\nname = 'fast'\ncores = 0.9\n[[worker]]\nname = 'slow'\ncores = 0.3\n")
    launcher = [os.environ["ISOCHRON_PROGRAM"], "launch", "--cluster", str(cluster), "--", sys.executable]
    done = launch(launcher, folder, NOBODY)
    assert done.returncode == 0, done.stdout + done.stderr
    check_trained(folder, NOBODY)


CASES = {case.__name__: case for case in (launched, launched_loss, program_launched)}
