#!/usr/bin/env python3
"""Where the processor time of a step goes on a throttled worker, for PyTorch, TensorFlow and the native engine.

    benchmarks/breakdown/breakdown.py --cluster hl8 --json breakdown.json

PyTorch's and TensorFlow's workers train by turns with the stock wrapper (DDP, MultiWorkerMirroredStrategy) and with a
job that has equal shares, so that the difference is what a job adds. Rows are milliseconds of processor time a step on
the worker with the smallest quota, medians over the turns: of the thread that trains, by phase, then by thread. The
native engine has no Python to wrap: perf says which threads and libraries its processor time goes to.

--from FILE prints the tables of figures that were written before.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
WORKERS = {"torch": (".venv", "torch_worker.py"), "tensorflow": (".venv-tf", "tensorflow_worker.py")}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="hl8", help="as of isochron launch; a number: so many equal workers")
    parser.add_argument("--frameworks", default="torch,tensorflow,native")
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    parser.add_argument("--isochron", default=str(ROOT / "build/dev/bin/isochron"), help="the program")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    parser.add_argument("--from", dest="given", type=pathlib.Path, help="print these, and measure nothing")
    parser.add_argument("rest", nargs="*", help="further options of the workers, behind --")
    return parser.parse_args()


def launch(options, command):
    where = ["-n", options.cluster] if options.cluster.isdigit() else ["--cluster", options.cluster]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run([options.isochron, "launch", *where, "--", *command], env=environment, check=True)


def measure(options, framework, folder):
    if framework == "native":
        return measure_native(options, folder)
    environment, program = WORKERS[framework]
    file = pathlib.Path(folder) / "figures.json"
    launch(options, [
        str(ROOT / environment / "bin/python"), str(HERE / program), "--batch", str(options.batch), "--turns",
        str(options.turns), "--steps", str(options.steps), "--json", str(file), *options.rest])  # fmt: skip
    return json.loads(file.read_text())["workers"]


def measure_native(options, folder):
    """Shares of a worker's processor time by thread and library, of each of the workers, after the start is over."""
    program = shlex.join([
        options.isochron, "train", "--model", "cnn", "--dataset", "synthetic", "--test-samples", "64", "--global-batch",
        str(options.batch), "--policy", "uniform", "--steps", str(options.turns * options.steps)])  # fmt: skip
    record = f"exec perf record -q -e cpu-clock -F 499 -D 4000 -o {folder}/$OMPI_COMM_WORLD_RANK {program}"
    launch(options, ["sh", "-c", record])
    workers = []
    for file in sorted(pathlib.Path(folder).glob("[0-9]*")):
        report = subprocess.run(
            ["perf", "report", "-i", file, "--stdio", "-F", "overhead,sample,comm,dso", "-t", ";"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        rows = [[cell.strip() for cell in line.split(";")] for line in report.stdout.splitlines()
                if ";" in line and not line.startswith("#")]  # fmt: skip
        shares = [(float(share.rstrip("%")), int(samples), f"{thread}: {library}")
                  for share, samples, thread, library in rows]  # fmt: skip
        workers.append({"samples": sum(samples for _, samples, _ in shares),
                        "shares": {place: share for share, _, place in shares}})  # fmt: skip
    return workers


def native_table(workers):
    worker = min(workers, key=lambda one: one["samples"])
    lines = [f"{share:8.1f} %  {place}" for place, share in worker["shares"].items() if share >= 1.0]
    return [*lines, f"of {worker['samples']} samples"]


def median_of(turns, *keys):
    values = []
    for turn in turns[1:]:  # the first one does not count
        for key in keys:
            turn = turn.get(key, 0.0) if isinstance(turn, dict) else turn
        values.append(turn)
    return statistics.median(values)


def rows_of(worker, kind):
    names = collections.Counter()
    for turns in worker.values():
        for turn in turns:
            names.update({name: value for name, value in turn[kind].items() if name != "between" or value})
    return sorted(names, key=names.get, reverse=True)


def table(worker):
    """Lines of what one worker measured."""
    loops = sorted(worker, reverse=True)  # stock first
    lines = [f"{'':24}" + "".join(f"{name:>12}" for name in loops) + f"{'added':>12}"]
    for kind, title in (("own", "of the thread that trains"), ("threads", "by thread"), ("whole", "of all, by phase")):
        lines.append(f"{title}:")
        for name in rows_of(worker, kind):
            if (kind, name) == ("threads", "main"):
                continue  # it also read the figures of the other threads
            values = [median_of(worker[loop], kind, name) for loop in loops]
            if max(values) >= 0.005:
                added = values[-1] - values[0]
                lines.append(f"  {name:22}" + "".join(f"{value:12.3f}" for value in (*values, added)))
    for key, title in (("cpu_ms", "processor time"), ("step_ms", "time on the wall")):
        values = [median_of(worker[loop], key) for loop in loops]
        lines.append(f"{title:24}" + "".join(f"{value:12.3f}" for value in (*values, values[-1] - values[0])))
    pairs = zip(*(worker[loop][1:] for loop in reversed(loops)), strict=True)
    ratios = [mine["cpu_ms"] / theirs["cpu_ms"] for mine, theirs in pairs]
    lines.append(f"processor time, ratio turn by turn: {statistics.median(ratios):.4f}")
    return lines


def throttled(workers):
    """The one that has the least processor time of every second."""
    return min(workers, key=lambda one: median_of(one["stock"], "cpu_ms") / median_of(one["stock"], "step_ms"))


def main():
    options = parse()
    if options.given:
        figures = json.loads(options.given.read_text())
    else:
        figures = {"command": " ".join(sys.argv), "cluster": options.cluster, "frameworks": {}}
        for framework in options.frameworks.split(","):
            with tempfile.TemporaryDirectory() as folder:
                figures["frameworks"][framework] = measure(options, framework, folder)
        if options.json:
            options.json.write_text(json.dumps(figures) + "\n")
    for framework, workers in figures["frameworks"].items():
        if framework == "native":
            print(f"\nnative, {figures['cluster']}, processor time of its most throttled worker by thread and library")
            print("\n".join(native_table(workers)))
            continue
        print(f"\n{framework}, {figures['cluster']}: milliseconds a step of its most throttled worker")
        print("\n".join(table(throttled(workers))))


if __name__ == "__main__":
    main()
