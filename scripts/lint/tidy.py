#!/usr/bin/env python3
"""clang-tidy on every source, several at a time: tidy.py all | changed [BASE]

It reads the sources as the dev preset compiles them, several at once, since most of its time goes into headers. What
was clean is not looked at again until something it depends on changes: a file, a header of ours that it includes, the
flags, the checks, LibTorch or clang-tidy itself. The memory of that is in the user's cache, as the compiler's is, so
that another clone has it, too. With --deep the static analyzer, which takes most of the time, follows whole paths
through the code as well.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time

import sources

# Not Debian's: from version 22 on it does not look into the headers of others, LibTorch's above all.
TIDY = sources.ROOT / ".venv/bin/clang-tidy"
# The standard library deprecates what its own std::stable_sort calls.
QUIET = ["-Wno-deprecated-declarations"]
# LibTorch's headers are those of a requirement.
CHECKS = sources.tracked("*.clang-tidy", "requirements*.txt")
DEEP = "--deep" in sys.argv[1:]
SELECTION = "" if DEEP else ",-clang-analyzer-*"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "isochron" / "tidy"
KEPT_DAYS = 30  # since a memory was last of use
# Tests have checks of their own, which say less.
TEST_CHECKS = re.search(r"Checks: >\n((?:  .*\n)+)", (sources.ROOT / "tests/.clang-tidy").read_text())[1]


def fingerprint(unit, version):
    """The same for a unit of another clone that lies elsewhere."""
    words = "\0".join(map(str, [version, unit.file, SELECTION, *unit.arguments]))
    digest = hashlib.sha256(words.replace(str(sources.ROOT), "").encode())
    for path in [*sources.closure(unit.sources), *CHECKS]:
        digest.update((sources.ROOT / path).read_bytes())
    return digest.hexdigest()


def check(unit, version):
    """clang-tidy's findings, empty if there are none."""
    memory = CACHE / fingerprint(unit, version)
    if memory.exists():
        memory.touch()
        return ""
    checks = "".join(TEST_CHECKS.split()) if unit.sources[0].parts[0] == "tests" else ""
    # A file that includes sources is what it should be.
    checks = f"--checks={checks},-bugprone-suspicious-include{SELECTION}"
    command = [TIDY, "--quiet", f"--config-file={sources.ROOT}/.clang-tidy", checks, unit.file, "--",
               *unit.arguments[1:], *QUIET]  # fmt: skip
    run = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True)
    if run.returncode:
        return run.stdout or run.stderr
    memory.touch()
    return ""


def main():
    CACHE.mkdir(parents=True, exist_ok=True)
    for memory in CACHE.iterdir():
        if memory.stat().st_mtime < time.time() - KEPT_DAYS * 86400:
            memory.unlink(missing_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    units = sources.units()
    compiled = {source for unit in units for source in unit.sources}
    units = [*units, *(sources.Unit(sources.ROOT / path, sources.FALLBACK, [path])
                       for path in sources.tracked("*.cc") if path not in compiled | sources.FOR_GPUS)]  # fmt: skip
    changed = sources.changed()
    if changed is not None:
        units = [unit for unit in units if changed.intersection(sources.closure(unit.sources))]
    with concurrent.futures.ThreadPoolExecutor(sources.CORES) as pool:
        findings = list(pool.map(lambda unit: check(unit, version), units))
    print("".join(findings), end="")
    return int(any(findings))


sys.exit(main())
