"""`python -m isochron`: the program that came with the package, or that the tree has built."""

import os
import pathlib
import sys
import sysconfig


def program() -> pathlib.Path | None:
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    here = pathlib.Path(__file__).resolve()
    found = [pathlib.Path(folder) / "isochron" for folder in folders] + [here.parents[2] / "build" / "isochron"]
    return next((path for path in found if path.is_file()), None)


def main() -> int:
    path = program()
    if path is None:
        print("isochron: the program is not installed; permitted: the package's wheel, or a tree after `make`",
              file=sys.stderr)  # fmt: skip
        return 1
    os.environ["ISOCHRON_INTERPRETER"] = sys.executable or ""  # `doctor` looks at it
    os.execv(path, ["isochron", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
