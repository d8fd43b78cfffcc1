#!/usr/bin/env python3
"""clang-tidy on every source, several at a time.

A source that was clean is not looked at again until something it depends on changes: the file, a header of ours that it
includes, the flags or the checks. The memory of that is in build/lint. With --deep the static analyzer, which takes
most of the time, follows whole paths through the code as well.
"""

import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import sys

import sources

# Not Debian's: from version 22 on it does not look into the headers of others, LibTorch's above all.
TIDY = sources.ROOT / ".venv/bin/clang-tidy"
# The standard library deprecates what its own std::stable_sort calls.
QUIET = ["-Wno-deprecated-declarations"]
CHECKS = sources.tracked("*.clang-tidy")
DEEP = "--deep" in sys.argv[1:]
SELECTION = [] if DEEP else ["--checks=-clang-analyzer-*"]
MEMORY = sources.ROOT / "build" / "lint" / ("tidy-deep" if DEEP else "tidy")


def dependencies(path, arguments):
    """The files of ours that `path` includes, itself among them."""
    command = ["clang++-19", *arguments[1:], "-w", "-MM", sources.ROOT / path]
    rule = subprocess.run(command, capture_output=True, text=True).stdout.replace("\\\n", " ")
    files = [pathlib.Path(word) for word in rule.split()[1:]]
    return sorted({str(file.relative_to(sources.ROOT)) for file in files if file.is_relative_to(sources.ROOT)})


def fingerprint(files, arguments):
    digest = hashlib.sha256("\0".join(arguments).encode())
    for file in [*files, *CHECKS]:
        path = sources.ROOT / file
        digest.update(path.read_bytes() if path.exists() else b"gone")
    return digest.hexdigest()


def check(path, arguments):
    """clang-tidy's findings, empty if there are none."""
    memory = MEMORY / f"{str(path).replace('/', '.')}.json"
    if memory.exists():
        clean = json.loads(memory.read_text())
        if fingerprint(clean["files"], arguments + SELECTION) == clean["fingerprint"]:
            return ""
        memory.unlink()
    command = [TIDY, "--quiet", *SELECTION, sources.ROOT / path, "--", *arguments[1:], *QUIET]
    run = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True)
    if run.returncode:
        return run.stdout or run.stderr
    files = dependencies(path, arguments)
    memory.write_text(json.dumps({"files": files, "fingerprint": fingerprint(files, arguments + SELECTION)}))
    return ""


def main():
    MEMORY.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    seal = MEMORY / "version"
    if not seal.exists() or seal.read_text() != version:
        for memory in MEMORY.glob("*.json"):
            memory.unlink()
        seal.write_text(version)
    commands = sources.compile_commands()
    paths = sources.tracked("*.cc")
    with concurrent.futures.ThreadPoolExecutor(sources.CORES) as pool:
        findings = list(pool.map(lambda path: check(path, commands.get(path, sources.FALLBACK)), paths))
    print("".join(findings), end="")
    return int(any(findings))


sys.exit(main())
