#!/usr/bin/env python3
"""Unequal workers on one GPU, and a GPU with a CPU: equal shares against isochron.

    benchmarks/python/gpu.py --json gpu.json

Shares of the GPU are made by NVIDIA's Multi-Process Service (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), which is started if it
is not running. Each worker's speed alone is measured in the same run; efficiency is B over the sum of those speeds,
divided by the mean step. All workers use gloo: NCCL refuses ranks that share a GPU.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

SETS = {
    "mps-50-25-15-10": ["50", "25", "15", "10"],
    "mps-75-25": ["75", "25"],
    "gpu-cpu": ["100", "cpu"],
}


def worker(options):
    """A rank: trains and prints its times."""
    import torch
    from torch import nn

    import isochron.torch as isochron

    device = torch.device("cpu" if os.environ["ISOCHRON_SHARE"] == "cpu" else "cuda:0")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128),
        nn.ReLU(), nn.Conv2d(128, 256, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    dataset = torch.utils.data.TensorDataset(torch.randn(8192, 3, 32, 32), torch.randint(0, 10, (8192,)))
    job = isochron.Job(global_batch=options.batch, policy=options.policy, device=device, backend="gloo",
                       last_batch="drop", kind=os.environ["ISOCHRON_SHARE"])  # fmt: skip
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    ends = []
    while job.step < options.steps:
        for x, y in job.loader(dataset):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
            if job.step + 1 >= options.steps:
                break
        job.finish_step()
    steady = ends[len(ends) // 3 :]
    seconds = (steady[-1] - steady[0]) / (len(steady) - 1)
    balance = job.last_step.balance
    if job.is_first:
        print(json.dumps({"step_seconds": seconds, "balance": balance, "batch_sizes": job.last_step.batch_sizes}))
    job.close()


def launch(shares, options, policy, batch):
    """The result of a job whose workers have these shares."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = []
    for rank, share in enumerate(shares):
        environment = {
            **os.environ,
            "RANK": str(rank), "WORLD_SIZE": str(len(shares)), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
            "ISOCHRON_SHARE": share,
        }  # fmt: skip
        if share != "cpu":
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = share
        command = [sys.executable, __file__, "--worker", "--policy", policy, "--batch", str(batch),
                   "--steps", str(options.steps)]  # fmt: skip
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"a worker of {shares} failed")
    return json.loads(outputs[0])


def start_mps():
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise SystemExit("no nvidia-cuda-mps-control here: this benchmark needs an NVIDIA GPU with its driver's tools")
    subprocess.run([control, "-d"], stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="isochron")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    start_mps()
    results = []
    for name, shares in SETS.items():
        speeds = []
        for share in shares:
            batch = max(options.batch // len(shares), 1)
            speeds.append(batch / launch([share], options, "uniform", batch)["step_seconds"])
        ideal = options.batch / sum(speeds)
        for policy in ("uniform", "isochron"):
            runs = [launch(shares, options, policy, options.batch) for _ in range(options.rounds)]
            seconds = statistics.median(run["step_seconds"] for run in runs)
            results.append({
                "cluster": name, "policy": policy, "samples_per_second": options.batch / seconds,
                "efficiency": ideal / seconds, "balance": runs[-1]["balance"], "batch_sizes": runs[-1]["batch_sizes"],
            })  # fmt: skip
            print(json.dumps(results[-1]))
    if options.json:
        options.json.write_text(json.dumps({"command": "gpu", "results": results}) + "\n")


if __name__ == "__main__":
    main()
