#!/usr/bin/env python3
"""Brings uPlot, which draws the plots of the page, from npm into web/vendor, licence included.

What is there and whole is left alone. Files are compared with checksums, so a package that changed cannot go unnoticed.
"""

import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "web" / "vendor" / "uplot"
PACKAGE = "uplot@1.6.32"

# File in the package -> start of the SHA-256 of its content.
FILES = {
    "dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f71615",
    "dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b1",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc33",
}


def is_right(content, expected):
    return hashlib.sha256(content).hexdigest().startswith(expected)


def is_there(name, expected):
    path = TARGET / pathlib.Path(name).name
    return path.is_file() and is_right(path.read_bytes(), expected)


def bring():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = pathlib.Path(folder).glob("*.tgz")
        with tarfile.open(archive) as package:
            contents = {name: package.extractfile(f"package/{name}").read() for name in FILES}
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, expected in FILES.items():
        if not is_right(contents[name], expected):
            raise ValueError(f"{name} of {PACKAGE} has another checksum; permitted: {expected}…")
        (TARGET / pathlib.Path(name).name).write_bytes(contents[name])


if all(is_there(name, expected) for name, expected in FILES.items()):
    sys.exit()
print("setup: bringing uPlot into web/vendor", file=sys.stderr)
try:
    bring()
except (OSError, KeyError, ValueError, subprocess.SubprocessError, tarfile.TarError) as error:
    sys.exit(f"setup: uPlot: {error}")
