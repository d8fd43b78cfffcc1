#!/usr/bin/env python3
"""Compares the policies with an oracle over the scenarios of docs/algorithms.md, and prints its tables.

Every cell is total time over the oracle's on the same noise, the blind first step excluded, as the mean over seeds; in
brackets, for isochron, the share of steps with a change. Simulated time: the figures do not depend on the machine.
"""

import argparse
import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build" / "isochron"

# name, cluster, noise (None: the cluster's own), global batch, steps
SCENARIOS = [
    ("hl8, no noise", "hl8", 0, 128, 300),
    ("hl2, 5 %", "hl2", 0.05, 1024, 400),
    ("hl4, 5 %", "hl4", 0.05, 1024, 400),
    ("hl8, 5 %", "hl8", 0.05, 1024, 400),
    ("16 workers, 5 %", "mixed16", 0.05, 4096, 400),
    ("256 workers, 5 %", "mixed256", 0.05, 16384, 400),
    ("noise 2, 2, 2, 20 %", "uneven-noise", None, 1024, 400),
    ("spikes, 1 % of steps", "spiky", None, 1024, 600),
    ("dynamic, 5 %", "dynamic", 0.05, 1024, 800),
    ("drift 1 % a step", "drifting", None, 1024, 800),
    ("affine, dynamic", "affine-dynamic", None, 128, 800),
    ("GPU + CPU 100:1", "gpu-cpu", None, 1024, 300),
    ("AR(1) 0.9, 10 %", "autocorrelated", None, 1024, 600),
    ("periodic 40 %", "periodic", None, 1024, 600),
    ("ceiling on the fastest", "ceiling", None, 1024, 400),
    ("2 T4 + 2 P4", "t4-p4", None, 512, 300),
    ("shares of a GPU, cold sizes", "gpu-shares", None, 256, 200),
    ("burstable VMs", "burstable", None, 512, 600),
    ("spot machines", "spot", None, 512, 600),
    ("all share 10 % noise", "shared-noise", None, 1024, 400),
]
POLICIES = ["uniform", "omnilearn", "lb-bsp", "lb-bsp:predictor=ewma", "lb-bsp:device=gpu", "lbb", "dlb", "isochron"]
PARTS = ["risk", "shape", "two-hypotheses", "rent-or-buy", "common-mode"]
ABLATIONS = ["isochron"] + [f"isochron:{part}=off" for part in PARTS] + ["late-oracle"]


def simulate(scenario, policies, seed):
    _, cluster, noise, batch, steps = scenario
    command = [PROGRAM, "simulate", "--cluster", cluster, "--policy", ",".join(policies), "--global-batch", str(batch)]
    command += ["--steps", str(steps), "--seed", str(seed), "--json", "-"]
    if noise is not None:
        command += ["--noise", str(noise)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)["results"]


def table(policies, seeds, with_recovery):
    print("| scenario | B | " + " | ".join(policies) + (" | recovery p50/p90 |" if with_recovery else " |"))
    print("|---" * (len(policies) + 2 + with_recovery) + "|")
    for scenario in SCENARIOS:
        runs = [simulate(scenario, policies, seed) for seed in range(seeds)]
        cells = []
        for k, policy in enumerate(policies):
            mean = sum(run[k]["time_over_oracle"] for run in runs) / seeds
            changes = sum(run[k]["adjustments"] for run in runs) / seeds / scenario[4]
            digits = 4 if mean < 2 else 3 if mean < 10 else 1
            cells.append(f"{mean:.{digits}f}" + (f" ({changes:.1%})" if policy.startswith("isochron") else ""))
        if with_recovery:
            ours = [run[policies.index("isochron")] for run in runs]
            if ours[0]["speed_changes"]:
                means = (sum(run["recovery_steps"][q] for run in ours) / seeds for q in ("p50", "p90"))
                cells.append("/".join(f"{mean:.1f}" for mean in means))
            else:
                cells.append("")
        print(f"| {scenario[0]} | {scenario[3]} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8, help="runs per cell (8)")
    seeds = parser.parse_args().seeds
    if seeds < 1:
        parser.error(f"--seeds is {seeds}; permitted: 1 or more")
    table(POLICIES, seeds, with_recovery=True)
    print()
    table(ABLATIONS, seeds, with_recovery=False)


if __name__ == "__main__":
    main()
