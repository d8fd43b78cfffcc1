#!/usr/bin/env python3
"""The shape of the tree: no source that nothing compiles, headers that introduce themselves, no endless or unfinished
file, no mention of a document that is not there."""

import re
import sys

import sources

MAX_LINES = 600
MAX_COLUMNS = 120
DOCUMENT = re.compile(r"\bdocs/\w+\.md\b")
LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX)\b")


def orphans():
    """A test file that nobody registered would look green forever."""
    compiled = {source for unit in sources.units() for source in unit.sources}
    for path in sources.tracked("*.cc"):
        if path.parts[:2] == ("tests", "fuzz"):  # built by preset asan only
            known = path.stem.removesuffix("_fuzz") in (sources.ROOT / "tests/fuzz/CMakeLists.txt").read_text()
        else:
            known = path in compiled | sources.FOR_GPUS
        if not known:
            yield f"{path}: no CMakeLists.txt compiles it"


def contents():
    for path in sources.tracked("*.h", "*.cc", "*.py", "*.sh", "*.cmake", "*CMakeLists.txt"):
        lines = (sources.ROOT / path).read_text().splitlines()
        if len(lines) > MAX_LINES:
            yield f"{path}: {len(lines)} lines; permitted: {MAX_LINES}"
        if path.suffix == ".h" and not (lines and lines[0].startswith("//")):
            yield f"{path}:1: a header opens with a comment that says what it is"
        if path.suffix == ".h" and "#pragma once" not in lines:
            yield f"{path}: no #pragma once"
        for number, line in enumerate(lines, 1):
            # In C++, clang-format minds all but comments.
            if len(line) > MAX_COLUMNS and (path.suffix not in (".h", ".cc") or "//" in line):
                yield f"{path}:{number}: {len(line)} columns; permitted: {MAX_COLUMNS}"
            if path.name != "tree.py" and LEFT_OVER.search(line):
                yield f"{path}:{number}: unfinished: {line.strip()}"
            for document in DOCUMENT.findall(line):
                if not (sources.ROOT / document).exists():
                    yield f"{path}:{number}: {document} does not exist"


complaints = [*orphans(), *contents()]
print("\n".join(complaints), end="\n" if complaints else "")
sys.exit(bool(complaints))
