"""What the checks look at: the C++ files that git tracks, and how the dev preset compiles them."""

import json
import os
import pathlib
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORES = len(os.sched_getaffinity(0))
FALLBACK = ["c++", "-std=c++20", f"-I{ROOT}"]


def tracked(*patterns):
    output = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in map(pathlib.Path, output.splitlines()) if (ROOT / path).exists()]


def compile_commands():
    """Source, relative to the root -> compiler arguments without input and output."""
    commands = {}
    for entry in json.loads((ROOT / "build/dev/compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        # Without precompiled headers: every source includes what it uses, and another compiler cannot read them.
        for flag in ("-o", "-c", "-include"):
            if flag in arguments:
                at = arguments.index(flag)
                del arguments[at : at + 2]
        source = pathlib.Path(entry["file"])
        arguments = [argument for argument in arguments if argument not in ("-Winvalid-pch", "-fpch-preprocess")]
        if source.is_relative_to(ROOT) and not source.is_relative_to(ROOT / "build"):
            commands[source.relative_to(ROOT)] = arguments
    return commands
