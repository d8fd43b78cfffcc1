#!/usr/bin/env python3
"""Unequal workers on one GPU, and a GPU with a CPU: DDP's equal shares against isochron.

    benchmarks/python/gpu.py --nccl libnccl.so.2 --json gpu.json
    benchmarks/python/gpu.py --table gpu.json other.json

Starts compare.py or, for samples of unequal length, lengths.py, which say what is measured, once for every set of
workers and round. Shares of the GPU are made by NVIDIA's MPS. --nccl names a library of NCCL 2.30 or later, by which
workers of one GPU exchange gradients; without it they go through host memory. A round that hangs in NCCL is ended by a
watchdog, counted, and tried again.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
import gpu_sharing  # noqa: E402

# Under a share of 75 % of MPS the Transformer's weight gradients are not finite in some passes, with one process and
# without Isochron, too; why is not known. So nothing looks at them here, Isochron as little as DDP.
TURNS = ["--solo-seconds", "1.5", "--turns", "2", "--steps", "6", "--first-steps", "14", "--on-nonfinite", "ignore"]
# The first turn, from the first step on, is what counts there: over_oracle_at_first.
SETTLING = ["--solo-seconds", "1.5", "--turns", "1", "--steps", "10", "--first-steps", "60", "--on-nonfinite", "ignore"]
FOUR, TWO = ["50", "25", "15", "10"], ["75", "25"]
LENGTHS = ["--size", "gpt2", "--text", "lognormal", "--collate", "packed", "--batch", "256", "--turns", "2",
           "--steps", "8", "--first-steps", "14"]  # fmt: skip
# Workers, and how compare.py runs: a CPU needs seconds for its half of a batch.
SETS = {
    "gpt2-50-25-15-10": (FOUR, ["--task", "gpt2", "--batch", "256", *TURNS]),
    "gpt2-75-25": (TWO, ["--task", "gpt2", "--batch", "256", *TURNS]),
    "gpt2-75-25-settling": (TWO, ["--task", "gpt2", "--batch", "256", *SETTLING]),
    "resnet50-50-25-15-10": (FOUR, ["--task", "resnet50", "--batch", "512", *TURNS]),
    "resnet50-75-25": (TWO, ["--task", "resnet50", "--batch", "512", *TURNS]),
    "wide-cnn-50-25-15-10": (FOUR, ["--task", "wide-cnn", "--batch", "1024", *TURNS]),
    "wide-cnn-75-25": (TWO, ["--task", "wide-cnn", "--batch", "1024", *TURNS]),
    "gpu-cpu": (["100", "cpu"], ["--task", "wide-cnn", "--batch", "512", "--turns", "3", "--steps", "10",
                                 "--first-steps", "14", "--equal-steps", "1", "--solo-seconds", "3"]),
    "lengths-75-25": (TWO, LENGTHS),
    "lengths-50-25-15-10": (FOUR, LENGTHS),
}


def launch(shares, arguments, policies, library, seconds):
    """What the first worker found out; None if it took longer than `seconds`."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder, gpu_sharing.mps() as places:
        result = pathlib.Path(folder) / "result.json"
        processes = []
        for rank, share in enumerate(shares):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": str(len(shares)), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_RESTART_COUNT": "0", "PYTHONPATH": str(HERE.parents[1] / "python"),
                **places, **gpu_sharing.nccl(library, len(shares)),
            }  # fmt: skip
            if arguments is LENGTHS:
                command = [sys.executable, HERE / "lengths.py", *arguments]
            else:
                command = [sys.executable, HERE / "compare.py", "--policies", policies, *arguments]
            if share == "cpu":
                command += ["--device", "cpu", "--threads", max(os.cpu_count() - 2, 1)]
            else:
                environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = share
                command += ["--device", "cuda:0"]
            if rank == 0:
                command += ["--json", result]
            processes.append(gpu_sharing.start(command, environment))
        deadline = time.monotonic() + seconds
        try:
            while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
                if any(process.poll() for process in processes):
                    time.sleep(5)  # the others say what they think of it
                    break
                time.sleep(0.1)
        finally:
            codes = [process.poll() for process in processes]
            gpu_sharing.end(processes)
        if any(codes):
            raise SystemExit(f"workers with shares {shares} ended with {codes}")
        return json.loads(result.read_text()) if result.exists() else None


def median(rounds):
    """Over the rounds, figure by figure."""
    merged = []
    for rows in zip(*(one["results"] for one in rounds), strict=True):
        keys = [key for key in rows[0] if key not in ("policy", "name", "turns")]
        numbers = {key: statistics.median(row[key] for row in rows) for key in keys}
        merged.append({"policy": rows[0].get("policy") or rows[0]["name"], **numbers})
    if "speeds" not in rounds[0]:
        return {"results": merged}
    speeds = [statistics.median(values) for values in zip(*(one["speeds"] for one in rounds), strict=True)]
    return {"backend": rounds[0]["backend"], "ideal": sum(speeds), "speeds": speeds, "results": merged}


COLUMNS = ("ddp", "uniform", "omnilearn", "lb-bsp", "isochron", "isochron+min_batch=0", "oracle", "alone")


def table(files):
    """The figures of such files as rows of docs/benchmarks.md; of the oracle also over the first turn."""
    # Files of benchmarks/lengths.py may lie beside them.
    known = [json.loads(file.read_text()) for file in files]
    sets = [(name, found) for one in known if "kind" not in one for name, found in one.items()]
    heads = ["set", "rounds", "hung", "ideal", *COLUMNS, "isochron x DDP", "of oracle", "at first", "of solo"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name, found in sets:
        if "ideal" not in found:
            continue  # of lengths, below
        rows = {row["policy"]: row for row in found["results"]}
        speeds = [f"{rows[one]['samples_per_second']:.0f}" if one in rows else "" for one in COLUMNS]
        ours = rows.get("isochron", {})
        keys = {"over_ddp": ".2f", "over_oracle": ".3f", "over_oracle_at_first": ".3f", "share_of_solo": ".3f"}
        ratios = [f"{ours[key]:{digits}}" if key in ours else "" for key, digits in keys.items()]
        cells = [name, str(len(found["rounds"])), str(found["hung"]), f"{found['ideal']:.0f}", *speeds, *ratios]
        print("| " + " | ".join(cells) + " |")
    print("\n| set | turns | loop | samples/s | tokens/s | x by count |\n" + "|---" * 6 + "|")
    for name, found in sets:
        for row in found["results"] if "ideal" not in found else ():
            turns = sum(one["turns"] for one in found["rounds"])
            print(f"| {name} | {turns} | {row['policy']} | {row['samples_per_second']:.0f} | "
                  f"{row['tokens_per_second']:.0f} | {row['over_by_count']:.2f} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS), help="which of " + ", ".join(SETS))
    parser.add_argument("--policies", default="uniform,omnilearn,lb-bsp,isochron,oracle")
    parser.add_argument("--mixed-policies", default="uniform,isochron,oracle,alone", help="of sets with a CPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nccl", type=pathlib.Path, help="libnccl.so.2, 2.30 or later")
    parser.add_argument("--watchdog", type=float, default=150.0, help="seconds for a round")
    parser.add_argument("--attempts", type=int, default=3, help="at a round that hangs")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, nargs="+", help="only print the figures of such files")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    for name in options.sets.split(","):
        if name not in SETS:
            parser.error(f"--sets is {name}; permitted: {', '.join(SETS)}")
    results = {}
    for name in options.sets.split(","):
        shares, arguments = SETS[name]
        # Those that take a CPU minutes to leave equal shares are left out.
        policies = options.mixed_policies if "cpu" in shares else options.policies
        rounds, hung = [], 0
        while len(rounds) < options.rounds and hung < options.attempts:
            print(f"{name}, round {len(rounds) + 1}", flush=True)
            found = launch(shares, arguments, policies, options.nccl, options.watchdog)
            rounds += [found] if found else []
            hung += 0 if found else 1
            if rounds:
                results[name] = {**median(rounds), "shares": shares, "rounds": rounds, "hung": hung}
            if options.json:
                options.json.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
