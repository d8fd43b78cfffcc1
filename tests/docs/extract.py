#!/usr/bin/env python3
"""Writes a document's C++ blocks into a folder and prints their paths, separated by semicolons, for CMake."""

import pathlib
import sys

import blocks

document, folder = map(pathlib.Path, sys.argv[1:])
folder.mkdir(parents=True, exist_ok=True)
paths = []
for number, block in enumerate([block for block in blocks.read(document) if block.language == "cpp"], 1):
    kind = "program" if block.is_program() else "fragment"
    path = folder / f"{document.stem}_{number}.{kind}.cc"
    # The compiler then reports errors where the reader sees them.
    text = f'#line {block.line} "{document}"\n{block.text}'
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    paths.append(str(path))
print(";".join(paths), end="")
