#!/usr/bin/env python3
"""Isochron beside the software that people would take instead, one duel a command:

    benchmarks/peers/run.py gradient     how far from the one-process gradient, when batches are unequal
    benchmarks/peers/run.py shares       who computes how many samples of B = 64 and 384 on unequal workers
    benchmarks/peers/run.py kill         one of four workers is killed
    benchmarks/peers/run.py join         a worker comes while three train
    benchmarks/peers/run.py overhead     equal workers: processor and wall-clock time of a step
    benchmarks/peers/run.py throughput   speed and time to accuracy on hl2, hl4, hl8 and dynamic; wants a quiet machine

Peers are installed when first needed (environments.py). Results go to benchmarks/peers/results/DUEL.json, where those
of peers that were not asked for stay as they are; page.py makes docs/comparison.md of them.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import sys
import time

import environments
import page
import start

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def duels():
    import elastic
    import gradient
    import speed

    return {"gradient": gradient.duel, "shares": speed.shares, "kill": elastic.kill, "join": elastic.join,
            "overhead": speed.overhead, "throughput": speed.throughput}  # fmt: skip


def machine():
    model = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "")  # fmt: skip
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d", time.gmtime())}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("duel")
    parser.add_argument("--peers", help="with commas between; else all that the duel knows")
    parser.add_argument("--json", type=pathlib.Path, help="else benchmarks/peers/results/DUEL.json")
    parser.add_argument("--seconds", type=float, default=40.0, help="throughput: of training, for each")
    parser.add_argument("--clusters", default="hl2,hl4,hl8,dynamic", help="throughput")
    parser.add_argument("--batch", type=int, default=384, help="throughput: samples per step")
    parser.add_argument("--rounds", type=int, default=5, help="overhead: runs of each, in turns")
    parser.add_argument("--together", type=int, default=1, help="runs at the same time, on two cores each (1)")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python", help="which has torch")
    parser.add_argument("--isochron", type=pathlib.Path, default=ROOT / "build/dev/bin/isochron", help="the program")
    parser.add_argument("--wheels", type=pathlib.Path, help="folder to install from, where there is no network")
    options = parser.parse_args()
    known = duels()
    if options.duel not in known:
        parser.error(f"duel is '{options.duel}'; permitted: {', '.join(known)}")
    options.peers = options.peers.split(",") if options.peers else None
    for peer in options.peers or ():
        if peer not in environments.PEERS:
            parser.error(f"--peers has '{peer}'; permitted: {', '.join(environments.PEERS)}")
    target = options.json or HERE / "results" / f"{options.duel}.json"

    def keep(row):
        """In place of an older one of the same name; at once, so that it is known if a later one fails."""
        page.save(target, options.duel, page.merged(page.read(target), [{**row, "machine": machine()}]))
        print(json.dumps(row), flush=True)

    signal.signal(signal.SIGTERM, start.end_all)
    signal.signal(signal.SIGINT, start.end_all)
    known[options.duel](options, keep)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
