#!/usr/bin/env python3
"""Each layer includes only what it may know: core the standard library and itself, sim also core, and so on."""

import re
import sys

import sources

# Layer -> the layers it may include, itself among them.
KNOWS = {
    "core": {"core"},
    "baselines": {"core", "baselines"},
    "data": {"core", "data"},
    "sim": {"core", "sim"},
    "plan": {"core", "sim", "plan"},
    "io": {"core", "sim", "plan", "io"},
    "server": {"core", "server"},
    "python": {"core", "io", "server", "python"},
    "view": {"core", "io", "view"},
    "serve": {"core", "view", "serve"},
    "emulate": {"core", "sim", "io", "emulate"},
    "cli": {"core", "sim", "plan", "io", "view", "serve", "emulate", "cli"},
    "comm": {"core", "comm"},
    "engine": {"core", "data", "io", "comm", "server", "engine"},
    "model": {"core", "model"},
    "train": {"core", "data", "sim", "io", "comm", "server", "engine", "model", "train"},
    "worker": {
        "core", "data", "sim", "plan", "io", "view", "serve", "cli", "comm", "server", "emulate", "engine", "model",
        "train", "worker",
    },  # fmt: skip
}
STANDARD_ONLY = {"core", "baselines", "data", "sim", "plan"}
FOREIGN = {"data": {"fcntl.h", "sys/stat.h", "unistd.h", "zlib.h"}}  # exceptions to it: POSIX files, zlib
# Core is told what happened and answers what to do: it has no clock, thread, file or foreign randomness.
NOT_IN_CORE = {
    "atomic", "chrono", "condition_variable", "cstdio", "ctime", "filesystem", "fstream", "future", "iostream",
    "mutex", "random", "thread",
}  # fmt: skip
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
STANDARD = re.compile(r"[a-z_0-9]+")


def complaint(layer, bracket, header):
    """What is wrong with the include, or None."""
    if header.startswith("isochron/"):
        other = header.split("/")[1]
        if bracket == "<":
            return f'<{header}> is ours: write "{header}"'
        return None if other in KNOWS[layer] else f"{layer} must not know {other}"
    if header in FOREIGN.get(layer, ()):
        return None
    if layer in STANDARD_ONLY and not (bracket == "<" and STANDARD.fullmatch(header)):
        return f"{layer} includes the standard library only, not {header}"
    if layer == "core" and header in NOT_IN_CORE:
        return f"core has no clock, thread, I/O or foreign randomness: not <{header}>"
    return None


complaints = []
for path in sources.tracked("isochron/*.h", "isochron/*.cc"):
    layer = path.parts[1]
    if layer not in KNOWS:
        complaints.append(f"{path}: layer {layer} is not in scripts/lint/layers.py")
        continue
    for number, line in enumerate((sources.ROOT / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        words = match and complaint(layer, *match.groups())
        if words:
            complaints.append(f"{path}:{number}: {words}")
print("\n".join(complaints), end="\n" if complaints else "")
sys.exit(bool(complaints))
