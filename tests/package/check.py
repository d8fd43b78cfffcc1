#!/usr/bin/env python3
"""Builds the projects of docs/cpp.md from outside: from installed packages, and with the sources inside."""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import blocks  # noqa: E402

# What a project has said itself, or left out, stays so.
OWN_SETTINGS = """
if(CMAKE_BUILD_TYPE OR CMAKE_RUNTIME_OUTPUT_DIRECTORY OR CMAKE_CXX_COMPILER_LAUNCHER OR BUILD_TESTING)
  message(FATAL_ERROR "isochron has changed the settings of the project around it")
endif()
"""


def run(*command, fails=False):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if (result.returncode != 0) != fails:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout + result.stderr


def block_of(document, language, number=0):
    return [block.text for block in blocks.read(ROOT / document) if block.language == language][number]


def configure(folder, *definitions, fails=False):
    names = [f"-D{definition}" for definition in (*definitions, "CMAKE_EXPORT_COMPILE_COMMANDS=ON")]
    return run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", *names, fails=fails)


def check_flags(folder, source):
    """Ours are for our own sources."""
    commands = json.loads((folder / "build" / "compile_commands.json").read_text())
    (own,) = [one["command"] for one in commands if one["file"].endswith(source)]
    for flag in (" -W", "-ffp-contract", "-fpch-preprocess", " -O", "ccache"):
        assert flag not in own, f"{source} is compiled with {flag}: {own}"


def torch_of(options):
    (folder,) = options.venv.glob("lib/python3*/site-packages/torch/share/cmake")
    return folder


def check_installed(options, folder):
    run("cmake", "--install", options.build, "--prefix", folder / "package", "--component", "library")
    torch = torch_of(options)
    places = (f"CMAKE_PREFIX_PATH={folder / 'package'};{torch}", f"MPI_CXX_COMPILER={options.venv}/bin/mpicxx")
    project = folder / "installed"
    project.mkdir()
    text = block_of("docs/cpp.md", "cmake")
    (project / "CMakeLists.txt").write_text(text)
    (project / "trainer.cc").write_text(block_of("README.md", "cpp"))
    configure(project, *places)
    check_flags(project, "trainer.cc")
    run("cmake", "--build", project / "build")
    run(ROOT / "tests" / "ranks" / "mpirun.sh", options.mpirun, 2, project / "build" / "trainer")

    (project / "CMakeLists.txt").write_text(text.replace("data engine", "engin"))
    assert "no component 'engin'" in " ".join(configure(project, places[0], fails=True).split())


def commands_of(number, places):
    """What the document says to run cmake with, with other places than a reader has."""
    lines = block_of("docs/cpp.md", "text", number).replace("\\\n", " ").splitlines()
    words = [shlex.split(line)[1:] for line in lines if line.startswith("cmake ")]
    return [[places.get(word, word) for word in line] for line in words]


def check_core(folder):
    """Installed as the document says, where nothing but a compiler is to be found."""
    places = {"build/package": folder / "core-build", ".": ROOT, "~/isochron": folder / "core"}
    without = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Torch", "MPI", "ZLIB", "tomlplusplus", "CLI11")]
    for number, words in enumerate(commands_of(0, places)):
        fast = ["-G", "Ninja", "-DISOCHRON_UNITY=ON", *without] if number == 0 else []
        run("cmake", *words, *fast)
    project = folder / "with_core"
    project.mkdir()
    text = block_of("docs/cpp.md", "cmake").replace("data engine", "core sim")
    (project / "CMakeLists.txt").write_text(text.replace("engine isochron::data", "core isochron::sim"))
    (project / "trainer.cc").write_text((ROOT / "examples" / "02_simulate.cc").read_text())
    configure(project, f"CMAKE_PREFIX_PATH={folder / 'core'}", *(one.removeprefix("-D") for one in without))
    run("cmake", "--build", project / "build")
    run(project / "build" / "trainer")

    (project / "CMakeLists.txt").write_text(block_of("docs/cpp.md", "cmake"))
    said = " ".join(configure(project, f"CMAKE_PREFIX_PATH={folder / 'core'}", fails=True).split())
    assert "no component 'engine' in this package; permitted: core, sim, plan" in said, said
    assert "plan, " not in said, said


def check_engine_places(options, folder):
    """What the document says for the engine is enough where no environment of ours lies beside the sources. It is not
    built again: check_installed takes the same from the build folder."""
    places = {"build/package": folder / "engine-build", ".": ROOT,
              "Torch_DIR=$torch/Torch": f"Torch_DIR={torch_of(options)}/Torch",
              "MPI_CXX_COMPILER=mpicxx": f"MPI_CXX_COMPILER={options.venv}/bin/mpicxx"}  # fmt: skip
    words, *_ = commands_of(1, places)
    run("cmake", *words, "-G", "Ninja", f"-DISOCHRON_VENV={folder / 'none'}")


def check_engine_inside(options, folder):
    """As a part of a project that links the engine. Its own sources are compiled against it; all of it would take
    minutes more, since no other build has these flags."""
    project = folder / "engine_inside"
    project.mkdir()
    (project / "isochron").symlink_to(ROOT)
    package = re.compile(r"find_package\(isochron.*\)")
    text = package.sub("add_subdirectory(isochron EXCLUDE_FROM_ALL)", block_of("docs/cpp.md", "cmake"))
    (project / "CMakeLists.txt").write_text(text + OWN_SETTINGS)
    (project / "trainer.cc").write_text(block_of("README.md", "cpp"))
    configure(project, "ISOCHRON_ENGINE=ON", f"ISOCHRON_VENV={folder / 'none'}", f"Torch_DIR={torch_of(options)}/Torch",
              f"MPI_CXX_COMPILER={options.venv}/bin/mpicxx")  # fmt: skip
    check_flags(project, "trainer.cc")
    run("cmake", "--build", project / "build", "--target", "CMakeFiles/trainer.dir/trainer.cc.o")


def tagged_clone(folder):
    """What is committed, with the tag that the document names."""
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, folder / "published")
    (tag,) = re.findall(r"GIT_TAG (\S+)\)", block_of("docs/cpp.md", "cmake", 2))
    run("git", "-C", folder / "published", "tag", tag)
    return folder / "published"


def check_inside(folder, kind):
    """The sources in a folder, or where FetchContent has them."""
    project = folder / kind
    project.mkdir()
    text, definitions = block_of("docs/cpp.md", "cmake", 1), ["ISOCHRON_UNITY=ON"]
    if kind == "fetched":
        text = text.replace("add_subdirectory(isochron EXCLUDE_FROM_ALL)\n", block_of("docs/cpp.md", "cmake", 2))
        definitions += [f"ISOCHRON_GIT=file://{tagged_clone(folder)}"]
    else:
        (project / "isochron").symlink_to(ROOT)
    (project / "CMakeLists.txt").write_text(text + OWN_SETTINGS)
    (project / "controller.cc").write_text((ROOT / "examples" / "01_controller.cc").read_text())
    configure(project, *definitions)
    check_flags(project, "controller.cc")
    run("cmake", "--build", project / "build", "--target", "controller")
    assert "step 11:" in run(project / "build" / "controller")
    run("cmake", "--install", project / "build", "--prefix", project / "installed")
    assert not (project / "installed" / "include").exists(), "the project around it installs isochron, too"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="of preset dev, everything built")
    parser.add_argument("--venv", type=pathlib.Path, required=True)
    parser.add_argument("--mpirun", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_installed(options, pathlib.Path(folder))
        check_core(pathlib.Path(folder))
        check_engine_places(options, pathlib.Path(folder))
        check_engine_inside(options, pathlib.Path(folder))
        check_inside(pathlib.Path(folder), "inside")
        check_inside(pathlib.Path(folder), "fetched")


if __name__ == "__main__":
    main()
