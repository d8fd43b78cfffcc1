"""What happens when one of four workers is killed, and when one comes while three train.

Workers sleep 5 ms a sample, so that what is seen does not depend on who else uses the processor; B = 64; an epoch has
6,400 samples. The logs say which samples every worker used, by epoch, and when.
"""

import collections
import math
import os
import shutil
import signal
import statistics
import time

import environments
import start

WORKERS, BATCH, PACE, SAMPLES = 4, 64, 5, 6400
VICTIM = 2
BEFORE = {"hivemind": 30}  # steps of the victim before it is killed; else:
USUAL = 50
TUNED = ["--join_timeout_ms", "1000", "--heartbeat_timeout_ms", "1000"]
KILLED = {
    "ddp": [("", {}), ("torchrun --max-restarts 3, a snapshot every 50 steps", {"restarts": 3})],
    # Whether it goes on depends on the moment of the kill: so several runs of each.
    "torchft": [(f"{words}, run {number}", {"lighthouse": lighthouse})
                for words, lighthouse in (("lighthouse as in its README", ["--join_timeout_ms", "10000"]),
                                          ("time-outs of 1 s", TUNED)) for number in (1, 2, 3)],
}  # fmt: skip
JOINS = ("torchft", "hivemind")


def arguments(extra=()):
    return ["--batch", BATCH, "--pace", PACE, "--samples", SAMPLES, "--ids", *extra]


def by_step(logs, begin=0.0, end=math.inf):
    """Samples of every step in that time, by the peer's own count, all workers together."""
    total = collections.Counter()
    for steps in logs:
        for line in steps:
            if begin < line["time"] <= end:
                total[line["step"]] += line["samples"]
    return total


def rate(logs, begin, end):
    return sum(line["samples"] for steps in logs for line in steps if begin < line["time"] <= end) / (end - begin)


def gap(steps, moment):
    """The longest time without a step of this worker's that begins or ends after the moment, and when it ended."""
    times = [line["time"] for line in steps]
    usual = statistics.median([later - one for one, later in zip(times, times[1:]) if later < moment] or [0.0])
    gaps = [(later - one, later) for one, later in zip(times, times[1:]) if later > moment]
    longest = max(gaps, default=(0.0, moment))
    return max(longest[0] - usual, 0.0), longest[1]


def used(logs, epoch):
    """The samples of an epoch that were never used, and those used or computed more than once."""
    lines = [line for steps in logs for line in steps if line["epoch"] == epoch]
    count = collections.Counter(one for line in lines for one in line["ids"])
    return {"never_used": SAMPLES - len(count), "used_again": sum(number - 1 for number in count.values())}


def judge(job, peer, moment, victim_last):
    """What the logs say, once it is over."""
    logs = job.all_steps()
    survivors = [steps for rank, steps in enumerate(logs) if rank != VICTIM]
    # Who is behind when somebody dies may finish its step; what counts is whether anything happens later.
    last = max((steps[-1]["time"] for steps in survivors if steps), default=moment)
    result = {"goes_on": last > moment + 3.0}
    before = [line["step"] for line in logs[VICTIM] if line["time"] < moment][-21:-1]
    totals = by_step(logs, end=moment)
    result["batch_before"] = statistics.median(totals[step] for step in before)
    result["rate_before"] = rate(logs, moment - 2.5 if peer != "hivemind" else moment - 20, moment)
    if not result["goes_on"]:
        result["error"] = job.error()
        return result
    pause, over = max(gap(steps, moment) for steps in survivors if steps)
    totals = by_step(logs, over)
    later = sorted(totals)[1:-2]
    result |= {"pause": pause, "batch_after": statistics.median(totals[step] for step in later) if later else None,
               "rate_after": rate(logs, over, last)}  # fmt: skip
    epoch = victim_last["epoch"]
    if peer != "hivemind" and all(steps[-1]["epoch"] > epoch for steps in survivors):
        result |= used(logs, epoch)
    return result


def kill(options, keep):
    cases = [(peer, *case) for peer in options.peers or environments.PEERS for case in KILLED.get(peer, [("", {})])]
    start.side_by_side(options, keep, kill_one, cases)


def kill_one(options, lane, peer, variant, kind):
    row, enough = {"peer": peer, "variant": variant}, BEFORE.get(peer, USUAL)
    extra = ["--restarts"] if "restarts" in kind else []
    with start.Job(peer, WORKERS, arguments(extra), options, **kind) as job:
        if not job.wait(lambda: len(job.steps(VICTIM)) >= enough, 150):
            return job.failed(row)
        last = job.steps(VICTIM)[-1]
        os.kill(job.pid(VICTIM), signal.SIGKILL)
        moment = time.time()
        if peer == "hivemind":  # has no epochs
            job.wait(job.ran_out, 60)
        else:
            others = [rank for rank in range(WORKERS) if rank != VICTIM]
            through = lambda: all(job.steps(rank)[-1]["epoch"] > last["epoch"] for rank in others)  # noqa: E731
            job.wait(lambda: through() or (not kind.get("restarts") and job.ran_out()), 120)
        job.end()
        row |= judge(job, peer, moment, last)
    shutil.rmtree(job.folder, ignore_errors=True)
    return row


def join(options, keep):
    start.side_by_side(options, keep, join_one, [(peer,) for peer in options.peers or JOINS])


def join_one(options, lane, peer):
    row, newcomer = {"peer": peer, "variant": ""}, WORKERS - 1
    with start.Job(peer, WORKERS, arguments(), options, lighthouse=TUNED, absent=1) as job:
        if not job.wait(lambda: len(job.steps(0)) >= BEFORE.get(peer, USUAL), 150):
            return job.failed(row)
        moment = time.time()
        job.add(newcomer)
        row["joined"] = job.wait(lambda: len(job.steps(newcomer)) >= 3, 90)
        time.sleep(20 if peer == "hivemind" else 5)
        job.end()
        if row["joined"]:
            row |= joined(job.all_steps(), newcomer, moment, 20 if peer == "hivemind" else 2.5)
    shutil.rmtree(job.folder, ignore_errors=True)
    return row


def joined(logs, newcomer, moment, seconds):
    """What the others did before and after; `seconds` is how far to look back."""
    totals, last = by_step(logs), max(steps[-1]["time"] for steps in logs if steps)
    first = logs[newcomer][0]["time"]
    before = [line["step"] for line in logs[0] if line["time"] < moment][-21:-1]
    later = sorted({line["step"] for line in logs[newcomer]})[1:-2]
    return {
        "seconds_until_it_trains": first - moment,
        "pause": max(gap(steps, moment)[0] for steps in logs[:newcomer]),
        "batch_before": statistics.median(totals[step] for step in before),
        "batch_after": statistics.median(totals[step] for step in later) if later else None,
        "rate_before": rate(logs, moment - seconds, moment),
        "rate_after": rate(logs, first, last),
    }
