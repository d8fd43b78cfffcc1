#!/usr/bin/env python3
"""The duels whose figures are times, on a machine with 16 cores that has nothing else to do and perhaps no network:

    benchmarks/peers/quiet.py --wheels build/peers/wheels --json FOLDER --python PYTHON --isochron PROGRAM
    benchmarks/peers/page.py --merge FOLDER

PYTHON has torch, NumPy and SciPy and finds the package isochron; PROGRAM is build/dev/bin/isochron or the one that
scripts/gpu.py has built. Runs of different peers share the machine, two cores for each. `emulated` (kill, join, shares)
takes about two minutes, `overhead` one, `throughput` four.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = "isochron,ddp,fsdp2,accelerate,lightning,torchft,adaptdl,hivemind"
EQUAL = "ddp,isochron,fsdp2,accelerate,lightning,torchft,adaptdl"
PARTS = ("emulated", "overhead", "throughput")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", type=pathlib.Path, required=True, help="folder for the results")
    parser.add_argument("--seconds", default="25", help="of training, in `throughput`")
    parser.add_argument("--peers", default=PEERS)
    options, others = parser.parse_known_args()
    lanes = max((os.cpu_count() or 2) // 2, 1)
    equal = ",".join(peer for peer in EQUAL.split(",") if peer in options.peers.split(","))
    joining = ",".join(peer for peer in ("torchft", "hivemind") if peer in options.peers.split(","))
    runs = {
        "emulated": [["kill", "--peers", options.peers, "--together", lanes // 2 or 1],
                     ["shares", "--peers", options.peers, "--together", lanes // 2 or 1],
                     ["join", "--peers", joining, "--together", 2]],
        "overhead": [["overhead", "--peers", equal, "--together", lanes]],
        "throughput": [["throughput", "--peers", options.peers, "--together", lanes, "--seconds", options.seconds]],
    }  # fmt: skip
    subprocess.run([sys.executable, HERE / "environments.py", *options.peers.split(","), *others], check=True)
    worst = 0
    for part in options.parts.split(","):
        if part not in PARTS:
            parser.error(f"--parts has '{part}'; permitted: {', '.join(PARTS)}")
    for part in options.parts.split(","):
        begun = time.monotonic()
        commands = [[sys.executable, HERE / "run.py", *words, "--json", options.json / f"{words[0]}.json", *others]
                    for words in runs[part]]  # fmt: skip
        processes = [subprocess.Popen([str(word) for word in command]) for command in commands]
        worst = max(worst, *(process.wait() for process in processes))
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
