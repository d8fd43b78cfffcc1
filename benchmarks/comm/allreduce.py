#!/usr/bin/env python3
"""All-reduce over MPI against Gloo on local ranks, in turn so that drift of the machine hits both alike.

Prints medians over all rounds and the CPU share of a waiting rank; --json FILE writes the figures.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def time_gloo(rank, folder, options):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=options.ranks)
    tensor = torch.ones(int(options.megabytes * 1e6 / 4))
    times = []
    for _ in range(3 + options.repeats):
        tensor.fill_(1)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    if rank == 0:
        pathlib.Path(folder, "times").write_text(json.dumps(times[3:]))
    dist.destroy_process_group()


def run_gloo(options):
    import torch

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(time_gloo, (folder, options), nprocs=options.ranks)
        return json.loads(pathlib.Path(folder, "times").read_text())


def run_mpi(options):
    launcher = [ROOT / "tests/ranks/mpirun.sh", ROOT / ".venv/bin/mpirun", str(options.ranks)]
    program = [ROOT / "build/release/bin/comm_allreduce", str(options.megabytes), str(options.repeats)]
    return json.loads(subprocess.run([*launcher, *program], capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=45)
    parser.add_argument("--repeats", type=int, default=20, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()

    os.environ["OMP_NUM_THREADS"] = "1"
    mpi, gloo, waiting = [], [], []
    for _ in range(options.rounds):
        result = run_mpi(options)
        mpi += result["seconds"]
        waiting.append(result["waiting_share"])
        gloo += run_gloo(options)
    figures = {"ranks": options.ranks, "megabytes": options.megabytes, "mpi_seconds": statistics.median(mpi),
               "gloo_seconds": statistics.median(gloo), "ratio": statistics.median(mpi) / statistics.median(gloo),
               "waiting_share": statistics.median(waiting)}  # fmt: skip
    print("all-reduce of {megabytes:g} MB on {ranks} ranks: MPI {0:.1f} ms, Gloo {1:.1f} ms, ratio {ratio:.2f}; "
          "a waiting rank uses {2:.1f} % of a core".format(
              1e3 * figures["mpi_seconds"], 1e3 * figures["gloo_seconds"], 100 * figures["waiting_share"],
              **figures))  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
