#!/usr/bin/env python3
"""Switches off one protection after the other and expects a test to notice.

tests/mutations.toml lists them: a text in a source file, what takes its place, and the test that must fail then. Each
is built and run in a copy of the tree that costs nothing: an overlay in a mount namespace of its own, on top of the
tree with its build in build/dev, both of which stay as they are. That needs root, or a kernel that lets others do it.

  scripts/mutate.py               all of them; first every test must pass as things are
  scripts/mutate.py --only WORD   those that have it in their text
  scripts/mutate.py --check       only whether every text is still there, and the table in the documents up to date
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "dev"
LIST = ROOT / "tests" / "mutations.toml"
DOCUMENT = ROOT / "docs" / "guarantees.md"
KEYS = {"guarantee", "off", "file", "text", "becomes", "test"}
PATIENCE = "120"  # seconds of a test, since a protection may be what keeps it from waiting for ever


def is_python(name):
    """Tests are called PROGRAM.Suite.Name, or FILE::name as pytest knows them."""
    return "::" in name


def targets_of(mutation):
    """What is to be built: the test program, or the native module if the change is in C++."""
    if not is_python(mutation["test"]):
        return {mutation["test"].split(".")[0] + "_test"}
    return set() if mutation["file"].endswith(".py") else {"isochron_python"}


def name_of(mutation):
    return mutation["test"].split("::" if is_python(mutation["test"]) else ".", 1)[1]


def row(mutation):
    return f"| {mutation['guarantee']} | {mutation['off']} | `{mutation['file']}` | `{name_of(mutation)}` |"


def complaints(mutations):
    rows = set(DOCUMENT.read_text().splitlines())
    for mutation in mutations:
        if mutation.keys() != KEYS:
            yield f"{mutation.get('off')}: its keys are {sorted(mutation)}; permitted: {sorted(KEYS)}"
            continue
        path = ROOT / mutation["file"]
        found = path.read_text().count(mutation["text"]) if path.exists() else 0
        if found != 1:
            yield f"{mutation['file']}: the text to mutate is there {found} times instead of once: {mutation['text']}"
        if row(mutation) not in rows:
            yield f"{DOCUMENT.relative_to(ROOT)}: this row is missing: {row(mutation)}"


def output_of(*command):
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return process.returncode, process.stdout


def command_of(name):
    """How a test is started: on ranks, as ctest does it."""
    if is_python(name):
        return [str(ROOT / ".venv/bin/python"), "-B", "-m", "pytest", "-q", name]
    program, case = name.split(".", 1)
    command = [str(BUILD / "bin" / f"{program}_test")]
    if program == "ranks":
        suite = case.split(".")[0]
        listed = json.loads(subprocess.check_output(["ctest", "--test-dir", BUILD, "--show-only=json-v1"]))
        command = next(test["command"][:-1] for test in listed["tests"] if f"{suite}.*" in test["command"][-1])
    # Tests with parameters are called Instance/Suite.Name/parameter.
    return [*command, f"--gtest_filter={case}:*/{case}:{case}/*:*/{case}/*"]


def test(name, prefix=()):
    """Whether it passes, and what the program said."""
    variables = ("OMP_NUM_THREADS=1", "RC_PARAMS=seed=1", f"ISOCHRON_PROGRAM={BUILD / 'bin' / 'isochron'}")
    status, said = output_of("env", *variables, *prefix, *command_of(name))
    if "Running 0 tests" in said or "no tests ran" in said:
        sys.exit(f"no such test: {name}")
    if status == 0 and is_python(name) and not re.search(r"\d passed", said):
        sys.exit(f"{name} was skipped, which shows nothing")
    return status == 0, said


def build(targets):
    if not targets:
        return
    status, said = output_of("cmake", "--build", BUILD, "--target", *sorted(targets))
    if status != 0:
        sys.exit(said)


def judge(mutation):
    """In the overlay: 0 if the test notices."""
    path = ROOT / mutation["file"]
    path.write_text(path.read_text().replace(mutation["text"], mutation["becomes"]))
    build(targets_of(mutation))
    passed, said = test(mutation["test"], ("timeout", "--signal=KILL", PATIENCE))
    print(said)
    return 1 if passed else 0


def in_overlay(number):
    """Runs judge() for one mutation in a copy of the tree: status and output. What it leaves running ends with it."""
    with tempfile.TemporaryDirectory() as scratch:
        for folder in ("upper", "work"):
            (pathlib.Path(scratch) / folder).mkdir()
        layers = f"lowerdir={ROOT},upperdir={scratch}/upper,workdir={scratch}/work"
        inside = f'mount -t overlay overlay -o "{layers}" "{ROOT}" && cd "{ROOT}" && exec "$@"'
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        unshare += [] if os.geteuid() == 0 else ["--map-root-user"]
        return output_of(*unshare, "sh", "-c", inside, "sh", sys.executable, __file__, "--judge", str(number))


def run(mutations, chosen):
    build(set().union(*(targets_of(mutations[number]) for number in chosen)))
    for name in sorted({mutations[number]["test"] for number in chosen}):
        passed, said = test(name)
        if not passed:
            sys.exit(f"{said}\n{name} must pass before anything is switched off")
    survivors = 0
    for number in chosen:
        start = time.monotonic()
        status, said = in_overlay(number)
        caught = status == 0
        survivors += not caught
        verdict = "caught" if caught else "NOT CAUGHT"
        print(f"{verdict}, {time.monotonic() - start:.0f} s: {row(mutations[number])}", flush=True)
        if not caught:
            print(said, flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} were caught")
    return 1 if survivors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--judge", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    mutations = tomllib.loads(LIST.read_text())["mutation"]
    if options.judge is not None:
        return judge(mutations[options.judge])
    found = list(complaints(mutations))
    if found:
        print("\n".join(found))
        return 1
    if options.check:
        print(f"{len(mutations)} mutations have their text")
        return 0
    return run(mutations, [i for i, mutation in enumerate(mutations) if options.only in row(mutation)])


if __name__ == "__main__":
    sys.exit(main())
