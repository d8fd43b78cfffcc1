#!/usr/bin/env python3
"""clang-tidy on every source, several at a time: tidy.py all | changed [BASE]

It reads the sources as the dev preset compiles them, several at once, since most of its time goes into headers. What
was clean is not looked at again until something it depends on changes: a file, a header of ours that it includes, the
flags or the checks. The memory of that is in build/lint. With --deep the static analyzer, which takes most of the time,
follows whole paths through the code as well.
"""

import concurrent.futures
import hashlib
import re
import subprocess
import sys

import sources

# Not Debian's: from version 22 on it does not look into the headers of others, LibTorch's above all.
TIDY = sources.ROOT / ".venv/bin/clang-tidy"
# The standard library deprecates what its own std::stable_sort calls.
QUIET = ["-Wno-deprecated-declarations"]
CHECKS = sources.tracked("*.clang-tidy")
DEEP = "--deep" in sys.argv[1:]
SELECTION = "" if DEEP else ",-clang-analyzer-*"
MEMORY = sources.ROOT / "build" / "lint" / ("tidy-deep" if DEEP else "tidy")
# Tests have checks of their own, which say less.
TEST_CHECKS = re.search(r"Checks: >\n((?:  .*\n)+)", (sources.ROOT / "tests/.clang-tidy").read_text())[1]


def fingerprint(unit):
    digest = hashlib.sha256("\0".join(map(str, [unit.file, SELECTION, *unit.arguments])).encode())
    for path in [*sources.closure(unit.sources), *CHECKS]:
        digest.update((sources.ROOT / path).read_bytes())
    return digest.hexdigest()


def check(unit):
    """clang-tidy's findings, empty if there are none."""
    memory = MEMORY / str(unit.file.relative_to(sources.ROOT)).replace("/", ".")
    now = fingerprint(unit)
    if memory.exists() and memory.read_text() == now:
        return ""
    memory.unlink(missing_ok=True)
    checks = "".join(TEST_CHECKS.split()) if unit.sources[0].parts[0] == "tests" else ""
    # A file that includes sources is what it should be.
    checks = f"--checks={checks},-bugprone-suspicious-include{SELECTION}"
    command = [TIDY, "--quiet", f"--config-file={sources.ROOT}/.clang-tidy", checks, unit.file, "--",
               *unit.arguments[1:], *QUIET]  # fmt: skip
    run = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True)
    if run.returncode:
        return run.stdout or run.stderr
    memory.write_text(now)
    return ""


def main():
    MEMORY.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    seal = MEMORY / "version"
    if not seal.exists() or seal.read_text() != version:
        for memory in MEMORY.iterdir():
            memory.unlink()
        seal.write_text(version)
    units = sources.units()
    compiled = {source for unit in units for source in unit.sources}
    units = [*units, *(sources.Unit(sources.ROOT / path, sources.FALLBACK, [path])
                       for path in sources.tracked("*.cc") if path not in compiled | sources.FOR_GPUS)]  # fmt: skip
    changed = sources.changed()
    if changed is not None:
        units = [unit for unit in units if changed.intersection(sources.closure(unit.sources))]
    with concurrent.futures.ThreadPoolExecutor(sources.CORES) as pool:
        findings = list(pool.map(check, units))
    print("".join(findings), end="")
    return int(any(findings))


sys.exit(main())
