"""Remembers which runs of the quick stage passed, and with what, so that `make test` after a change repeats only what
the change can have touched.

A run is known by a digest of everything it may read: the programs in the build's bin folder and every file of the tree
that is neither a C++ source (the programs hold those) nor a document. The Python package and its tests count only for
the runs that start with "python." or "tensorflow.". Continuous integration (CI=true) and `make test fresh=1` remember
nothing.
"""

import hashlib
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILED = (".cc", ".h")
DOCUMENTS = (".md", ".png")
PYTHON_ONLY = ("python/", "tests/python/", "tests/tensorflow/", "examples/python/")


def digest_of(paths):
    total = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            total.update(f"{path}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


class Memory:
    """The runs of one build folder that passed, with the digest of what they passed with."""

    def __init__(self, build, fresh):
        self.file = build / "passed.json"
        files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                               cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")  # fmt: skip
        read = [name for name in files if name and not name.endswith(COMPILED + DOCUMENTS)]
        programs = [*(build / "bin").iterdir()]
        native = [ROOT / name for name in read if not name.startswith(PYTHON_ONLY)]
        python = [ROOT / name for name in read if name.startswith(PYTHON_ONLY)]
        modules = ROOT.glob("python/isochron/_core.*.so")
        self.native = digest_of([*programs, *native])
        self.python = digest_of([*programs, *native, *python, *modules])
        self.passed = {}
        if not fresh and not os.environ.get("CI") and self.file.exists():
            self.passed = json.loads(self.file.read_text())

    def digest(self, run):
        return self.python if run.startswith(("python.", "tensorflow.")) else self.native

    def unchanged(self):
        """Every run that passed with what is there now, with the cases that passed and were skipped in it."""
        return {run: entry for run, entry in self.passed.items() if entry["digest"] == self.digest(run)}

    def remember(self, cases_of_run):
        """{run: (passed cases, skipped cases)} of runs in which nothing failed; one skipped whole is tried again."""
        for run, (passed, skipped) in cases_of_run.items():
            if passed:
                self.passed[run] = {"digest": self.digest(run), "passed": passed, "skipped": skipped}
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps(self.passed, indent=1))
        written.replace(self.file)
