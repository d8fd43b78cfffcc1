#!/usr/bin/env python3
"""Writes where the project is published into what PyPI shows of it: address.py ADDRESS REVISION

ADDRESS is that of the repository on GitHub or a forge like it, which a workflow there knows and this tree does not.
Links and pictures of python/README.md become absolute, and pyproject.toml gets [project.urls]. The release workflow
runs this on its checkout before it packs anything; the changes are not for committing.
"""

import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)((?:#[^)\s]*)?)\)")
URLS = """
[project.urls]
Homepage = "{address}"
Documentation = "{address}/tree/{revision}/docs"
Changelog = "{address}/blob/{revision}/CHANGELOG.md"
Issues = "{address}/issues"
"""


def absolute(match, address, revision):
    picture, words, target, anchor = match.groups()
    path = posixpath.normpath(f"python/{target}")
    if not (ROOT / path).exists():
        raise SystemExit(f"python/README.md: {target} does not exist")
    kind = "raw" if picture else "tree" if (ROOT / path).is_dir() else "blob"
    return f"{picture}[{words}]({address}/{kind}/{revision}/{path}{anchor})"


def main():
    address, revision = sys.argv[1:]
    address = address.rstrip("/")
    if not address.startswith("https://"):
        raise SystemExit(f"ADDRESS is '{address}'; permitted: https://…")
    project, readme = ROOT / "pyproject.toml", ROOT / "python" / "README.md"
    if "[project.urls]" in project.read_text():
        raise SystemExit("pyproject.toml has [project.urls] already")
    readme.write_text(LINK.sub(lambda match: absolute(match, address, revision), readme.read_text()))
    project.write_text(project.read_text() + URLS.format(address=address, revision=revision))


main()
