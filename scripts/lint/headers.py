#!/usr/bin/env python3
"""Every header compiles alone: it includes what it uses. One that its own source includes first is proven by the builds
that compile each source by itself (preset tsan), so only the others are compiled here."""

import concurrent.futures
import subprocess
import sys

import sources

WITH_TORCH = "isochron/comm/world.cc"
WITH_PYTHON = "isochron/python/module.cc"
NEEDS_TORCH = {"comm", "engine", "model", "ranks", "server", "train", "worker"}


def is_proven(header):
    source = header.with_suffix(".cc")
    return (sources.ROOT / source).exists() and sources.includes(source)[:1] == [header]


def compile_alone(header):
    compiler = sources.arguments_of(WITH_TORCH) if NEEDS_TORCH.intersection(header.parts) else sources.FALLBACK
    if "python" in header.parts:
        compiler = sources.arguments_of(WITH_PYTHON)
    flags = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-fsyntax-only"]
    command = [*compiler, *flags, "-x", "c++", "-"]
    # Through a source file, since `#pragma once` in a main file is a warning.
    text = f'#include "{header}"\n'
    return subprocess.run(command, input=text, cwd=sources.ROOT, capture_output=True, text=True)


changed = sources.changed()
headers = [header for header in sources.tracked("*.h") if changed is None or header in changed]
alone = [header for header in headers if not is_proven(header)]
with concurrent.futures.ThreadPoolExecutor(sources.CORES) as pool:
    failures = [run.stderr for run in pool.map(compile_alone, alone) if run.returncode]
print("\n".join(failures), end="")
sys.exit(bool(failures))
