"""How far is what a step applies from the gradient of one process with the same samples, when batches are unequal?

Four real processes in double precision, batches of 5, 11, 17 and 31 samples, one step of SGD with a rate of 1: what the
parameters have moved by is the gradient that was applied. The reference is one process with the samples that the logs
name, which is 64 different ones for all but Hivemind, whose workers go on until the others are ready.
"""

import collections
import shutil

import duel as common
import environments
import numpy
import start

SHARES = (5, 11, 17, 31)
SINGLE = ("hivemind",)  # its optimizer's copy of the parameters is in single precision
VARIANTS = {
    "isochron": [("", [])],
    "ddp": [("", []), ("loss weighted by hand", ["--by-hand"])],
    "hivemind": [("single precision, target of 1600", ["--pace", 30, "--batch", 1600])],  # its rounds want 3 s and more
    "multiworker": [("own loop, by its guide", []), ("mean of each worker, as Keras' fit", ["--by-hand"])],
}


def reference(used):
    """What one process gets, with each sample as often as it was used; NumPy alone."""
    x, y = common.small_data(sum(SHARES))
    w1, b1, w2, b2 = common.small_parameters()
    weight = numpy.array([used[index] for index in range(len(x))], float)
    weight /= weight.sum()
    before = x @ w1.T + b1
    hidden = numpy.maximum(before, 0)
    scores = hidden @ w2.T + b2
    chance = numpy.exp(scores - scores.max(1, keepdims=True))
    chance /= chance.sum(1, keepdims=True)
    chance[numpy.arange(len(y)), y] -= 1
    chance *= weight[:, None]
    back = (chance @ w2) * (before > 0)
    return [back.T @ x, back.sum(0), chance.T @ hidden, chance.sum(0)]


def measure(job, first_step):
    files = sorted(job.folder.glob("result-*.npz"))
    if not files:
        return None
    used = collections.Counter(
        index for steps in job.all_steps() for line in steps if line["step"] == first_step for index in line["ids"]
    )
    with numpy.load(files[0]) as result:
        moved = [old - result[name] for old, name in zip(common.small_parameters(), result.files, strict=True)]
    truth = reference(used)
    flat, true = (numpy.concatenate([one.ravel() for one in side]) for side in (moved, truth))
    return {
        "relative_error": float(numpy.linalg.norm(flat - true) / numpy.linalg.norm(true)),
        "largest_error": float(abs(flat - true).max() / abs(true).max()),
        "samples": sum(used.values()),
        "different": len(used),
    }


def duel(options, keep):
    cases = [(peer, *case) for peer in options.peers or environments.PEERS for case in VARIANTS.get(peer, [("", [])])]
    start.side_by_side(options, keep, gradient_one, cases)


def gradient_one(options, lane, peer, variant, extra):
    row, workers = {"peer": peer, "variant": variant}, range(len(SHARES))
    arguments = ["--batch", sum(SHARES), "--shares", ",".join(map(str, SHARES)), "--samples", sum(SHARES), "--steps", 1,
                 "--rate", 1, "--ids", *([] if peer in SINGLE else ["--double"]), *extra]  # fmt: skip
    with start.Job(peer, len(SHARES), arguments, options, lighthouse=["--join_timeout_ms", "10000"]) as job:
        job.wait(lambda: all(any("end" in line for line in job.log(rank)) for rank in workers), 200)
        result = measure(job, min((steps[0]["step"] for steps in job.all_steps() if steps), default=0))
        if result is None:
            return job.failed(row)
    shutil.rmtree(job.folder, ignore_errors=True)
    return row | result
