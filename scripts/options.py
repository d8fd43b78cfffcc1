#!/usr/bin/env python3
"""Writes what follows from the table of a job's options (isochron/core/job_settings.cc) into the tree.

  python/isochron/keywords.py            the keywords of a job, typed
  docs/train.md, pytorch.md, tensorflow.md  the table between <!-- options: FACE --> and <!-- end of options -->

With --check it changes nothing and says which file is old. Run it with the Python that _core was built for.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from isochron import _core  # noqa: E402

FACES = {"train.md": "command_line", "pytorch.md": "torch", "tensorflow.md": "tensorflow"}
HEAD = '''\
"""The keywords of a job, typed. Written by scripts/options.py from isochron/core/job_settings.cc; do not edit."""

from __future__ import annotations

from typing import Literal, TypedDict
'''
CLASSES = {  # by who takes the options; None: both, with the same values
    None: ("JobKeywords(TypedDict", "isochron.torch.Job and isochron.tensorflow.Job take besides global_batch"),
    "torch": ("TorchJobKeywords(JobKeywords", "isochron.torch.Job takes alone, or with values of its own"),
    "tensorflow": (
        "TensorFlowJobKeywords(JobKeywords",
        "isochron.tensorflow.Job takes alone, or with values of its own",
    ),
}


def python_type(row, face):
    if row["choices"][face] and row["type"] == "str":
        return "Literal[" + ", ".join(f'"{choice}"' for choice in row["choices"][face]) + "]"
    return row["type"]


def is_shared(row):
    """Whether both frameworks take the option, and the same values of it."""
    return row["torch"] and row["tensorflow"] and row["choices"]["torch"] == row["choices"]["tensorflow"]


def keywords(rows):
    lines = [HEAD]
    for face, (name, meaning) in CLASSES.items():
        lines.append(f'\n\nclass {name}, total=False):\n    """What {meaning}."""\n\n')
        taker = face or "torch"
        lines += [entry(row, taker) for row in rows
                  if row["name"] != "global_batch" and row[taker] and is_shared(row) == (face is None)]  # fmt: skip
    return "".join(lines)


def meaning(row, face):
    """Without what it says of choices that this face does not have, as "local: once in a round"."""
    missing = set(row["choices"]["command_line"]) - set(row["choices"][face])
    return "; ".join(part for part in row["meaning"].split("; ") if part.split(":")[0] not in missing)


def entry(row, face):
    kind = python_type(row, face)
    line = f"    {row['name']}: {kind}"
    if len(line) > 116:
        kind = kind.removeprefix("Literal[").removesuffix("]")
        line = f"    {row['name']}: Literal[\n        {kind}\n    ]"
    return f'{line}\n    """{meaning(row, face)}."""\n'


def table(rows, face):
    shown = [row for row in rows if row[face]]
    lines = ["| option | permitted | default | meaning | the same on all workers |", "|---|---|---|---|---|"]
    for row in shown:
        name = "--" + row["name"].replace("_", "-") if face == "command_line" else row["name"]
        permitted = (", ".join(row["choices"][face]) or row["permitted"]).replace("|", "\\|")
        default = "" if row["default"] == "" or row["name"] == "global_batch" else f"`{row['default']}`"
        agreed = "yes, and as in the checkpoint" if row["checkpointed"] else "yes" if row["agreed"] else ""
        lines.append(f"| `{name}` | {permitted} | {default} | {meaning(row, face)} | {agreed} |")
    return "\n".join(lines) + "\n"


def outputs():
    rows = _core.job_options()
    yield ROOT / "python" / "isochron" / "keywords.py", keywords(rows)
    for name, face in FACES.items():
        path = ROOT / "docs" / name
        marks = re.compile(rf"(<!-- options: {face} -->\n).*?(<!-- end of options -->)", re.DOTALL)
        text = path.read_text()
        if not marks.search(text):
            raise SystemExit(f"{path}: there is no <!-- options: {face} -->")
        yield path, marks.sub(lambda match, face=face: match[1] + table(rows, face) + match[2], text)


def main():
    old = [(path, text) for path, text in outputs() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path, _ in old:
            print(f"{path.relative_to(ROOT)} is old; run scripts/options.py")
        return int(bool(old))
    for path, text in old:
        path.write_text(text)
    return 0


raise SystemExit(main())
