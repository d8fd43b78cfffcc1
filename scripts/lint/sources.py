"""What the checks look at: the files that git tracks, how the dev preset compiles them, and which of them changed."""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORES = len(os.sched_getaffinity(0))
FALLBACK = ["c++", "-std=c++20", f"-I{ROOT}"]
# Compiled where LibTorch is a build for GPUs, and read by nobody elsewhere: they have headers of CUDA's.
FOR_GPUS = {pathlib.Path("isochron/comm/nccl.cc")}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Unit:
    """What the compiler is given at a time: a source, or a file that includes several."""

    file: pathlib.Path
    arguments: list[str]  # without input and output
    sources: list[pathlib.Path]  # relative to the root


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")


def tracked(*patterns):
    return [pathlib.Path(path) for path in git("ls-files", *patterns) if path and (ROOT / path).exists()]


def changed():
    """The files that differ from the base, or None if all are asked for: CHECK all | CHECK changed [BASE]."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if words[:1] != ["changed"]:
        return None
    names = [*words[1:], "origin/main", "main", "HEAD"]
    known = (name for name in names if subprocess.run(["git", "rev-parse", "-q", "--verify", f"{name}^{{commit}}"],
                                                      cwd=ROOT, capture_output=True).returncode == 0)  # fmt: skip
    (base,) = git("merge-base", "HEAD", next(known))[:1]
    names = [*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")]
    return {pathlib.Path(name) for name in names}


@functools.cache
def units():
    """As the dev preset compiles them; what it does not compile stands alone."""
    found = []
    known = {ROOT / path for path in tracked("*.cc")}
    for entry in json.loads((ROOT / "build/dev/compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        # Without precompiled headers: every source includes what it uses, and another compiler cannot read them.
        for flag in ("-o", "-c", "-include"):
            if flag in arguments:
                at = arguments.index(flag)
                del arguments[at : at + 2]
        arguments = [argument for argument in arguments if argument not in ("-Winvalid-pch", "-fpch-preprocess")]
        file = pathlib.Path(entry["file"])
        names = INCLUDE.findall(file.read_text()) if file.name.startswith("unity_") and file.exists() else [file]
        ours = [path.relative_to(ROOT) for path in (ROOT / name for name in names) if path in known]
        if ours:
            found.append(Unit(file, arguments, ours))
    return found


def arguments_of(source):
    return next((unit.arguments for unit in units() if pathlib.Path(source) in unit.sources), FALLBACK)


@functools.cache
def includes(path):
    """The files of ours that this one includes itself."""
    text = (ROOT / path).read_text()
    return [file for file in map(pathlib.Path, INCLUDE.findall(text)) if (ROOT / file).exists()]


def closure(paths):
    """These files and all of ours that they include."""
    found, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += includes(path)
    return sorted(found)
