#!/usr/bin/env python3
"""Checks that a document tells the truth.

  cpp   compiled by CMake (see extract.py); run here if it holds main()
  sh    `build/isochron ...` is run and must succeed, or exit with N where the line ends in `# exit N`;
        `make ...` is run dry
  toml  read as a cluster file; commands further down find the last one as cluster.toml. With [[machine]] it is a
        machines file, which they find as machines.toml
  json  must be JSON; commands further down find the last one as profile.json
  python  run with the package on its path, after what is further up; run.jsonl is a run log
  diff  of Python: what was there and what comes in its place both run, behind what a script has of its own (PREPARED)
  cmake  built by tests/package/check.py
  text  output, or what only a person can check

Besides, every relative link leads to a file, and every `SomethingTest.Name` and every `test_name` is a test, or for the
latter a file of tests.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

import blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
TEST_NAME = re.compile(r"\b(\w+Test\.\w+)\b")
# Functions of pytest and those that tests/tensorflow runs by name.
PYTHON_NAME = re.compile(r"`(test_\w+)`")
PYTHON_TEST = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
TEST_MACRO = re.compile(r"^(?:\w*TEST\w*|RC_GTEST_\w*PROP)\(\s*(\w+),\s*(\w+)", re.MULTILINE)
EXIT = re.compile(r"\s*#\s*exit (\d+)\s*$")


PREPARED = '''import torch
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
model, loss_fn = torch.nn.Linear(4, 1), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
'''


class Untrue(Exception):
    pass


def run(command, folder, expected=0):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode != expected:
        words = shlex.join(map(str, command))
        raise Untrue(f"{words}: exit {result.returncode}, documented {expected}\n{result.stderr}")


def run_shell(block, folder):
    for line in block.text.replace("\\\n", " ").splitlines():
        command = line.strip().removeprefix("$ ")
        if not command or command.startswith("#"):
            continue
        exit_code = EXIT.search(command)
        words = shlex.split(command, comments=True)
        if words[0] == "build/isochron":
            run(words, folder, int(exit_code[1]) if exit_code else 0)
        elif words[0] == "make":
            run([*words, "--dry-run"], ROOT)
        else:
            raise Untrue(f"{command}: cannot be checked; tag the block text")


def run_python(block, folder):
    """A script that grows block by block, as a reader's notebook does."""
    if not (folder / "run.jsonl").exists():
        words = "build/isochron simulate --cluster hl8 --policy isochron --steps 20 --log run.jsonl"
        run(words.split(), folder)
    script = folder / "script.py"
    with script.open("a") as file:
        file.write(block.text)
    os.environ |= {"PYTHONPATH": str(ROOT / "python"), "MPLBACKEND": "Agg"}
    environment = ".venv-tf" if "isochron.tensorflow" in script.read_text() else ".venv"
    python = ROOT / environment / "bin" / "python"
    if environment == ".venv-tf" and not python.exists():
        print(f"not run, since there is no {environment}: {block.text.splitlines()[0]} ...")
        return
    run([python, script], folder)


def check_block(block, program, folder):
    if block.language == "sh":
        run_shell(block, folder)
    elif block.language == "toml" and "[[machine]]" in block.text:
        (folder / "machines.toml").write_text(block.text)
    elif block.language == "json":
        json.loads(block.text)
        (folder / "profile.json").write_text(block.text)
    elif block.language == "python":
        run_python(block, folder)
    elif block.language == "toml":
        (folder / "cluster.toml").write_text(block.text)
        run(["build/isochron", "simulate", "--cluster", "cluster.toml", "--steps", "3"], folder)
    elif block.language == "cpp":
        if block.is_program():
            run([program], folder)
    elif block.language == "diff":
        for sign in "+-":
            kept = [line[1:] for line in block.text.splitlines() if line[0] in (" ", sign)]
            run_python(dataclasses.replace(block, text=PREPARED + "\n".join(kept) + "\n"), folder)
    elif block.language not in ("cmake", "text"):
        raise Untrue(f"a block in '{block.language}'; permitted: cmake, cpp, sh, toml, json, python, diff, text")


def check_blocks(document, programs, isochron, folder):
    (folder / "build").mkdir()
    (folder / "build" / "isochron").symlink_to(isochron)
    number = 0
    for block in blocks.read(document):
        number += block.language == "cpp"
        try:
            check_block(block, programs / f"doc_{document.stem}_{number}", folder)
        except Untrue as complaint:
            yield f"{document}:{block.line}: {complaint}"


def check_names(document):
    tests = {
        f"{suite}.{name}"
        for source in ROOT.glob("tests/**/*_test.cc")
        for suite, name in TEST_MACRO.findall(source.read_text())
    }
    python_sources = list(ROOT.glob("tests/**/*.py"))
    python_tests = {name for source in python_sources for name in PYTHON_TEST.findall(source.read_text())}
    python_tests |= {source.stem for source in python_sources}
    for number, line in enumerate(document.read_text().splitlines(), 1):
        for target in LINK.findall(line):
            if not (document.parent / target).exists():
                yield f"{document}:{number}: {target} does not exist"
        for name in TEST_NAME.findall(line):
            if name not in tests:
                yield f"{document}:{number}: there is no test {name}"
        for name in PYTHON_NAME.findall(line):
            if name not in python_tests:
                yield f"{document}:{number}: there is no test {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of the compiled blocks")
    parser.add_argument("--isochron", type=pathlib.Path, required=True, help="the program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        complaints = list(check_blocks(options.document, options.programs, options.isochron, pathlib.Path(folder)))
    complaints += check_names(options.document)
    print("\n".join(complaints))
    return int(bool(complaints))


raise SystemExit(main())
