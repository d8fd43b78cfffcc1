#!/usr/bin/env python3
"""Every header compiles alone: it includes what it uses."""

import concurrent.futures
import pathlib
import subprocess
import sys

import sources


COMMANDS = sources.compile_commands()
WITH_TORCH = pathlib.Path("isochron/comm/progress.cc")
WITH_PYTHON = pathlib.Path("isochron/python/module.cc")
NEEDS_TORCH = {"comm", "engine", "model", "ranks", "server", "train", "worker"}


def compile_alone(header):
    compiler = COMMANDS[WITH_TORCH] if NEEDS_TORCH.intersection(header.parts) else sources.FALLBACK
    if "python" in header.parts:
        compiler = COMMANDS[WITH_PYTHON]
    command = [*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    # Through a source file, since `#pragma once` in a main file is a warning.
    text = f'#include "{header}"\n'
    return subprocess.run(command, input=text, cwd=sources.ROOT, capture_output=True, text=True)


with concurrent.futures.ThreadPoolExecutor(sources.CORES) as pool:
    failures = [run.stderr for run in pool.map(compile_alone, sources.tracked("*.h")) if run.returncode]
print("\n".join(failures), end="")
sys.exit(bool(failures))
