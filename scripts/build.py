#!/usr/bin/env python3
"""Configures the preset dev and builds targets of it: build.py TARGET...

Progress is a line now and then; the compiler's output goes to build/log/build.log and is shown if it fails.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOG = ROOT / "build" / "log" / "build.log"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # macOS knows no affinity
EVERY = 20  # seconds between two lines of progress
DONE = re.compile(r"\[(\d+)/(\d+)\]")


class Failed(Exception):
    pass


def configure(preset, log, **options):
    settings = [f"-D{name}={value}" for name, value in options.items()]
    command = ["cmake", "--preset", preset, "--log-level=WARNING", *settings]
    with log.open("a") as file:
        if subprocess.run(command, cwd=ROOT, stdout=file, stderr=file).returncode:
            raise Failed("configuring failed")


def build(preset, log, targets):
    """Builds the targets, and says from time to time how far it is."""
    command = ["cmake", "--build", ROOT / "build" / preset, "--parallel", str(CORES), "--target", *targets]
    said = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with log.open("a") as file:
        for line in process.stdout:
            file.write(line)
            done = DONE.match(line)
            if done and time.monotonic() - said > EVERY:
                said = time.monotonic()
                print(f"  building: {done[1]} of {done[2]} steps", flush=True)
    if process.wait():
        raise Failed("building failed")


def main():
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.write_text("")
    # A tree that was configured for the tests stays so; a new one needs no test library.
    fresh = not (ROOT / "build/dev/CMakeCache.txt").exists()
    lean = {"ISOCHRON_TESTS": "OFF", "ISOCHRON_PYTHON": "OFF"} if fresh else {}
    try:
        configure("dev", LOG, ISOCHRON_WERROR="ON", **lean)
        build("dev", LOG, sys.argv[1:])
    except Failed as failure:
        print(LOG.read_text()[-6000:])
        return f"{failure}; the whole log is {LOG.relative_to(ROOT)}"
    link = ROOT / "build" / "isochron"
    link.unlink(missing_ok=True)
    link.symlink_to("dev/bin/isochron")
    return 0


if __name__ == "__main__":
    sys.exit(main())
