#!/usr/bin/env python3
"""The documents as a site, built strictly: every link and anchor between them leads somewhere. What lies outside them
is named, or linked to where the repository's address is known."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADDRESS = "https://example.org/someone/isochron"
COOKBOOK = "examples/python/by_feature/README.md"


def build(folder, address):
    """The page on PyTorch."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "ISOCHRON_ADDRESS": address}
    subprocess.run(command, cwd=ROOT, env=variables, check=True)
    return (pathlib.Path(folder) / "pytorch.html").read_text()


def main():
    (folder,) = sys.argv[1:]
    named, linked = build(folder, ""), build(folder + "-linked", ADDRESS)
    assert COOKBOOK in named and "example.org" not in named
    assert f'href="{ADDRESS}/blob/HEAD/{COOKBOOK}"' in linked, "the cookbook is not linked to"
    assert f'href="{ADDRESS}/tree/HEAD/examples/python"' in linked, "a folder is not linked to"
    assert f'href="{ADDRESS}"' in linked, "the repository is not linked to"


main()
