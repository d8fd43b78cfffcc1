"""Who computes how many samples, what a step costs on equal workers, and speed and time to accuracy on unequal ones."""

import collections
import shutil
import statistics
import time

import duel
import environments
import numpy
import start

CLUSTER = (6, 6, 4, 32)  # cores of hl8
PACE = ",".join(f"{32 / cores:.3f}" for cores in CLUSTER)  # milliseconds a sample; the fastest takes 1
TARGET = 0.8  # accuracy
TEST = 2000
TIMED = ("isochron", "ddp", "fsdp2", "accelerate", "lightning", "torchft", "adaptdl", "hivemind")
EQUAL = ("ddp", "isochron", "fsdp2", "accelerate", "lightning", "deepspeed", "torchft", "adaptdl")
WARM, MEASURED = 20, 60  # steps of a run of `overhead`


def in_training(job, seconds, start_limit=150):
    """Lets it train so long after everybody's first step; when that was, or None."""
    if not job.wait(lambda: all(job.steps(rank) for rank in range(job.workers)), start_limit):
        return None
    begun = time.time()
    time.sleep(seconds)
    return begun


def shares(options, keep):
    """Workers sleep as long as hl8's would compute: 5.3, 5.3, 8 and 1 ms a sample."""
    cases = [(peer, batch) for peer in options.peers or environments.PEERS for batch in (64, 384)]
    start.side_by_side(options, keep, shares_one, cases)


def shares_one(options, lane, peer, batch):
    row, seconds = {"peer": peer, "variant": f"B = {batch}"}, 60 if peer == "hivemind" else 20
    arguments = ["--batch", batch, "--pace", PACE, "--samples", 40 * batch]
    with start.Job(peer, len(CLUSTER), arguments, options, lighthouse=["--join_timeout_ms", "10000"]) as job:
        begun = in_training(job, seconds)
        if begun is None:
            return job.failed(row)
        job.end()
        row |= of_second_half(job.all_steps(), begun + seconds / 2, begun + seconds)
    shutil.rmtree(job.folder, ignore_errors=True)
    return row


def of_second_half(logs, begin, end):
    """Whole steps whose first and last line are in the time."""
    times, samples = collections.defaultdict(list), collections.defaultdict(collections.Counter)
    for rank, steps in enumerate(logs):
        for line in steps:
            times[line["step"]].append(line["time"])
            samples[line["step"]][rank] += line["samples"]
    inside = [step for step, moments in times.items() if min(moments) > begin and max(moments) <= end]
    counts = [[samples[step][rank] for step in inside] or [0.0] for rank in range(len(logs))]
    per_worker = [statistics.mean(one) for one in counts]
    total = sum(line["samples"] for steps in logs for line in steps if begin < line["time"] <= end)
    updates = sum(begin < max(moments) <= end for moments in times.values())
    return {
        "per_worker": [round(one, 1) for one in per_worker],
        "batch": round(sum(per_worker), 1),
        "updates_per_second": updates / (end - begin),
        "samples_per_second": total / (end - begin),
    }


def overhead(options, keep):
    """Two equal workers, the CNN, B = 128; runs of all peers in turns, compared with DDP's of the same round."""
    peers = list(options.peers or EQUAL)
    if "ddp" not in peers:
        peers.insert(0, "ddp")
    found = collections.defaultdict(dict)
    cases = [(peer, number) for number in range(options.rounds) for peer in peers]
    start.side_by_side(options, lambda row: found[row["peer"]].update({row["round"]: row}), overhead_one, cases)
    for peer in peers:
        row = {"peer": peer, "variant": "", "rounds": options.rounds}
        pairs = [(found[peer][number], found["ddp"][number]) for number in range(options.rounds)]
        if all("cpu" in one for pair in pairs for one in pair):
            for name in ("cpu", "wall"):
                ratios = [mine[name] / theirs[name] for mine, theirs in pairs]
                row[f"{name}_milliseconds"] = 1000 * statistics.median(mine[name] for mine, _ in pairs)
                row[f"{name}_over_ddp"] = statistics.median(ratios)
                row[f"{name}_spread"] = [min(ratios), max(ratios)]
        else:
            row["failed"] = next((mine["failed"] for mine, _ in pairs if "failed" in mine), "DDP failed")
        keep(row)


def overhead_one(options, lane, peer, number):
    row = {"peer": peer, "round": number}
    arguments = ["--batch", 128, "--task", "cnn", "--samples", 2560, "--steps", WARM + MEASURED + 1]
    with start.Job(peer, 2, arguments, options, lighthouse=["--join_timeout_ms", "10000"],
                   cores=start.cores_of(options, lane)) as job:  # fmt: skip
        if not job.wait(lambda: all(len(steps) > WARM + MEASURED for steps in job.all_steps()), 300):
            return job.failed(row)
        logs = job.all_steps()
    row["cpu"] = sum(steps[WARM + MEASURED]["cpu"] - steps[WARM]["cpu"] for steps in logs) / MEASURED
    ends = [line["time"] for line in logs[0][WARM : WARM + MEASURED + 1]]
    row["wall"] = statistics.median(later - one for one, later in zip(ends, ends[1:]))
    shutil.rmtree(job.folder, ignore_errors=True)
    print(f"{peer}: {1000 * row['cpu']:.1f} ms of processor, {1000 * row['wall']:.1f} ms", flush=True)
    return row


def throughput(options, keep):
    """Under the CPU quotas of `isochron launch`; with --together, peers run at the same time on two cores each."""
    peers = list(options.peers or TIMED)
    cases = [(peer, cluster) for cluster in options.clusters.split(",") for peer in peers]
    start.side_by_side(options, keep, throughput_one, cases)


def throughput_one(options, lane, peer, cluster):
    row = {"peer": peer, "variant": f"B = {options.batch}", "cluster": cluster}
    arguments = ["--batch", options.batch, "--task", "cnn", "--samples", 20 * options.batch, "--snapshots", 5]
    with start.Job(peer, 4, arguments, options, cluster=cluster, cores=start.cores_of(options, lane),
                   lighthouse=["--join_timeout_ms", "30000"]) as job:  # fmt: skip
        begun = in_training(job, options.seconds, 150)
        if begun is None:
            return job.failed(row)
        job.end()
        logs = job.all_steps()
        row |= of_second_half(logs, begun + options.seconds / 3, begun + options.seconds)
        row["steps"] = len({line["step"] for steps in logs for line in steps})
        row |= accuracy(job, min(steps[0]["time"] for steps in logs))
    shutil.rmtree(job.folder, ignore_errors=True)
    return row


def accuracy(job, first):
    """On samples that nobody trained with: seconds from the first step to the target, and that of the last snapshot."""
    import torch
    import torch_task

    x, y = duel.pictures(TEST, seed=99)
    x, y, model = torch.from_numpy(x), torch.from_numpy(y), torch_task.cnn()
    points = []
    for line in job.log(job.workers - 1):
        if "snapshot" in line:
            with numpy.load(job.folder / f"snapshot-{line['snapshot']}.npz") as arrays, torch.no_grad():
                for parameter, name in zip(model.parameters(), arrays.files, strict=True):
                    parameter.copy_(torch.from_numpy(arrays[name]))
                points.append((line["time"] - first, float((model(x).argmax(1) == y).float().mean())))
    reached = [seconds for seconds, value in points if value >= TARGET]
    return {"target": TARGET, "seconds_to_target": reached[0] if reached else None,
            "last_accuracy": points[-1][1] if points else None,
            "curve": [[round(at, 1), round(value, 3)] for at, value in points[:: len(points) // 12 or 1]]}  # fmt: skip
