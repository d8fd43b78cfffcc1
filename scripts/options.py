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
CLASSES = {  # with who takes the options: PyTorch, TensorFlow
    (True, True): ("JobKeywords(TypedDict", "isochron.torch.Job and isochron.tensorflow.Job take besides global_batch"),
    (True, False): ("TorchJobKeywords(JobKeywords", "isochron.torch.Job takes alone"),
    (False, True): ("TensorFlowJobKeywords(JobKeywords", "isochron.tensorflow.Job takes alone"),
}


def python_type(row):
    if row["choices"] and row["type"] == "str":
        return "Literal[" + ", ".join(f'"{choice}"' for choice in row["choices"]) + "]"
    return row["type"]


def keywords(rows):
    lines = [HEAD]
    for faces, (name, meaning) in CLASSES.items():
        lines.append(f'\n\nclass {name}, total=False):\n    """What {meaning}."""\n\n')
        lines += [entry(row) for row in rows
                  if (row["torch"], row["tensorflow"]) == faces and row["name"] != "global_batch"]  # fmt: skip
    return "".join(lines)


def entry(row):
    kind = python_type(row)
    line = f"    {row['name']}: {kind}"
    if len(line) > 116:
        kind = kind.removeprefix("Literal[").removesuffix("]")
        line = f"    {row['name']}: Literal[\n        {kind}\n    ]"
    return f'{line}\n    """{row["meaning"]}."""\n'


def table(rows, face):
    shown = [row for row in rows if row[face]]
    lines = ["| option | permitted | default | meaning | the same on all workers |", "|---|---|---|---|---|"]
    for row in shown:
        name = "--" + row["name"].replace("_", "-") if face == "command_line" else row["name"]
        permitted = row["permitted"].replace("|", "\\|")
        default = "" if row["default"] == "" or row["name"] == "global_batch" else f"`{row['default']}`"
        agreed = "yes, and as in the checkpoint" if row["checkpointed"] else "yes" if row["agreed"] else ""
        lines.append(f"| `{name}` | {permitted} | {default} | {row['meaning']} | {agreed} |")
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
