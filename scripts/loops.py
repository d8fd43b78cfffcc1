#!/usr/bin/env python3
"""Writes the table of docs/loops.md: the cells that tests/python/test_torch_loops.py runs. Needs torch: run it with
.venv/bin/python."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

import loop_document  # noqa: E402

document = ROOT / "docs" / "loops.md"
document.write_text(loop_document.with_table(document.read_text()))
