#!/usr/bin/env python3
"""Unequal workers on one GPU, and a GPU with a CPU: DDP's equal shares against isochron.

    benchmarks/python/gpu.py --json gpu.json

Starts compare.py, which says what is measured, once for every set of workers. Shares of the GPU are made by NVIDIA's
Multi-Process Service (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), which is started if it is not running.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# Workers, and how compare.py runs: a CPU needs seconds for its half of a batch.
SETS = {
    "mps-50-25-15-10": (["50", "25", "15", "10"], ["--batch", "1024", "--turns", "4", "--steps", "12"]),
    "mps-75-25": (["75", "25"], ["--batch", "1024", "--turns", "4", "--steps", "12"]),
    "gpu-cpu": (["100", "cpu"], ["--batch", "512", "--turns", "2", "--steps", "3"]),
}


def launch(shares, arguments, policies):
    """What the first worker found out."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        processes = []
        for rank, share in enumerate(shares):
            environment = {
                **os.environ,
                "RANK": str(rank), "WORLD_SIZE": str(len(shares)), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_RESTART_COUNT": "0", "PYTHONPATH": str(HERE.parents[1] / "python"),
            }  # fmt: skip
            command = [sys.executable, HERE / "compare.py", "--large", "--policies", policies, *arguments]
            if share == "cpu":
                command += ["--device", "cpu", "--threads", str(max(os.cpu_count() - 2, 1))]
            else:
                environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = share
                command += ["--device", "cuda:0"]
            if rank == 0:
                command += ["--json", result]
            processes.append(subprocess.Popen(command, env=environment))
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"workers with shares {shares} ended with {codes}")
        return json.loads(result.read_text())


def start_mps():
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise SystemExit("no nvidia-cuda-mps-control here: this benchmark needs an NVIDIA GPU with its driver's tools")
    subprocess.run([control, "-d"], stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS), help="which of " + ", ".join(SETS))
    parser.add_argument("--policies", default="uniform,omnilearn,lb-bsp,isochron,oracle")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    for name in options.sets.split(","):
        if name not in SETS:
            parser.error(f"--sets is {name}; permitted: {', '.join(SETS)}")
    start_mps()
    results = {}
    for name in options.sets.split(","):
        shares, arguments = SETS[name]
        print(name, flush=True)
        # Policies that begin with equal shares take a CPU minutes.
        policies = "isochron,oracle" if "cpu" in shares else options.policies
        results[name] = launch(shares, arguments, policies)
        if options.json:
            options.json.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
