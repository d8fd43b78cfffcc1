#!/usr/bin/env python3
"""Packs the sources as the release workflow does and the wheel from them, and does with it what a stranger does: in an
environment of its own, without a compiler, without this tree.

  wheel.py own      the wheel of the Python that runs this
  wheel.py oldest   the one of Python 3.10: needs 3.10
  wheel.py shared   the one of Python 3.12, which later ones share: needs 3.12 and 3.13
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ["nanobind", "scikit-build-core"]
ADDRESS = "https://example.org/us/isochron"

SCRIPT = """
import torch
import isochron.torch as isochron

job = isochron.Job(global_batch=16, log="run.jsonl")
model = torch.nn.Linear(4, 1)
model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
dataset = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
for epoch in job.epochs(2):
    for x, y in job.loader(dataset):
        job.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
job.close()
"""

PLOT = "import isochron; from isochron import plot; plot.overview(isochron.read_run('simulated.jsonl'))"

STOCK = """
import torch
from torch import distributed

distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    torch.nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 1)).backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()
"""


def run(*command, folder=None, status=0, **variables):
    command = list(map(str, command))
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, **variables})
    if result.returncode != status:
        raise SystemExit(f"{' '.join(command)}: exit {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout + result.stderr


def pack_sources(folder):
    """The source package of a tree that knows where it is published, unpacked: always at the same place, since the
    compiler cache goes by it."""
    shutil.rmtree(folder, ignore_errors=True)
    tree = folder / "tree"
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", folder=ROOT).split("\0")
    vendor = [str(path.relative_to(ROOT)) for path in (ROOT / "web" / "vendor").rglob("*")]
    for name in {*names, *vendor}:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    run(sys.executable, tree / "scripts" / "address.py", ADDRESS, "v1")
    run(sys.executable, "-c", "import scikit_build_core.build as b; b.build_sdist('../packed')", folder=tree)
    (packed,) = (folder / "packed").iterdir()
    print(packed.name, packed.stat().st_size // 1024, "kB")
    print(run(sys.executable, "-m", "twine", "check", "--strict", packed).strip())
    shutil.unpack_archive(packed, folder / "sources")
    (sources,) = (folder / "sources").iterdir()
    return sources


def check_metadata(wheel):
    """What PyPI shows: links and pictures lead somewhere from there, too."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    for line in ("Author: The Isochron authors", f"Project-URL: Homepage, {ADDRESS}", "License-Expression: Apache-2.0",
                 "Provides-Extra: torch", "Provides-Extra: tensorflow", "Provides-Extra: plot",
                 "Requires-Python: >=3.10"):  # fmt: skip
        assert f"\n{line}\n" in metadata, f"no '{line}' in {metadata[:3000]}"
    links = re.findall(r"\]\(([^)\s]+)\)", metadata)
    assert f"{ADDRESS}/raw/v1/docs/images/waiting.svg" in links and f"{ADDRESS}/blob/v1/docs/pytorch.md" in links, links
    assert all(link.startswith("https://") for link in links), links


def pack(python, kind, folder):
    """The wheel, with the tag that its contents allow."""
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", folder / "raw"]
    run(python, "-m", "pip", "wheel", *options, pack_sources(ROOT / "build" / "package" / kind))
    (raw,) = (folder / "raw").iterdir()
    tools = pathlib.Path(sys.executable).parent
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder / "wheels", raw,
        PATH=f"{tools}:{os.environ['PATH']}")  # fmt: skip
    (wheel,) = (folder / "wheels").iterdir()
    assert "manylinux" in wheel.name, wheel
    print(wheel.name, wheel.stat().st_size // 1024, "kB")
    print(run(sys.executable, "-m", "twine", "check", "--strict", wheel).strip())
    check_metadata(wheel)
    return wheel


class Stranger:
    """An environment that holds the wheel, and a shell that knows nothing else."""

    def __init__(self, python, wheel, folder):
        self.folder = folder
        run(python, "-m", "venv", folder / "venv")
        run(folder / "venv" / "bin" / "pip", "install", "--quiet", "--no-index", wheel)

    def run(self, *command, status=0):
        bin = self.folder / "venv" / "bin"
        variables = {"PATH": str(bin), "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
        return run(bin / command[0], *command[1:], folder=self.folder, status=status, **variables)

    def check(self):
        assert self.run("isochron", "--version").startswith("isochron ")
        assert "isochron" in self.run("python", "-m", "isochron", "policies")
        self.run("isochron", "simulate", "--policy", "isochron", "--steps", "20", "--log", "simulated.jsonl")
        self.run("isochron", "report", "simulated.jsonl", "-o", "report.html")
        assert (self.folder / "report.html").stat().st_size > 10_000
        self.run("isochron", "ledger", "simulated.jsonl")
        assert "samples per second" in self.run("isochron", "plan", "--run", "simulated.jsonl")
        assert "x equal shares" in self.run("isochron", "top", "simulated.jsonl")
        assert "hl8" in self.run("isochron", "clusters")
        assert "engine" in self.run("isochron", "train", status=2)
        told = self.run("isochron", "launch", "--workers", "2", "--mpirun", "/none", "python", "train.py", status=2)
        assert "/none" in told, told
        self.serve()
        self.run("python", "-c", "import isochron; assert isochron.policies()")
        told = self.run("python", "-c", PLOT, status=1)
        assert told.strip().endswith("isochron.plot needs matplotlib: pip install isochron[plot]"), told
        for module, framework, extra in (("isochron.torch", "PyTorch", "torch"),
                                         ("isochron.tensorflow", "TensorFlow", "tensorflow")):  # fmt: skip
            told = self.run("python", "-c", f"import {module}", status=1)
            assert told.strip().endswith(f"{module} needs {framework}: pip install isochron[{extra}]"), told
        (self.folder / "empty.py").write_text("")
        assert "pip install isochron[torch]" in self.run("python", "-m", "isochron.watch", "empty.py", status=1)

    def serve(self):
        """The live page comes from the program itself. How the machine looks is not asked, only that doctor looks."""
        program = self.folder / "venv" / "bin" / "isochron"
        findings = subprocess.run([program, "doctor", "--json", "-"], capture_output=True, text=True)
        assert "engine" in findings.stdout and findings.returncode in (0, 1), findings
        command = [program, "serve", "simulated.jsonl", "--port", "0"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                (address,) = re.findall(r"http://\S+", server.stdout.readline())
                with urllib.request.urlopen(address, timeout=60) as page:
                    assert b"<html" in page.read()
            finally:
                server.send_signal(signal.SIGINT)

    def train(self):
        """With torch from this tree's environment, which the tests have."""
        (site,) = (self.folder / "venv").glob("lib/python3*/site-packages")
        (there,) = pathlib.Path(sys.prefix).glob("lib/python3*/site-packages")
        # A path file, less what that environment's own ones say: among them is this tree's package.
        (site / "torch.pth").write_text(f"import sys; sys.path.append({str(there)!r})\n")
        (self.folder / "train.py").write_text(SCRIPT)
        where = self.run("python", "-c", "import isochron; print(isochron.__file__)")
        assert str(self.folder) in where, where
        self.run("python", "-m", "isochron.launch", "--workers", "2", "train.py")
        assert "Proven" in self.run("isochron", "ledger", "run.jsonl")

    def watch(self):
        """A loop that knows nothing of the package."""
        (self.folder / "stock.py").write_text(STOCK)
        told = self.run("python", "-m", "isochron.launch", "--workers", "2", "--watch", "stock.py")
        assert "The page: isochron-watch.html" in told, told
        assert (self.folder / "isochron-watch.html").stat().st_size > 10_000


def python_of(version):
    """One that works, which a shim of pyenv's on the PATH may not."""
    path = shutil.which(f"python{version}")
    if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
        return path
    if shutil.which("pyenv"):
        found = subprocess.run(["pyenv", "prefix", version], capture_output=True, text=True)
        return f"{found.stdout.strip()}/bin/python" if found.returncode == 0 else None
    return None


def try_own(folder):
    wheel = pack(sys.executable, "own", folder)
    stranger = Stranger(sys.executable, wheel, folder)
    stranger.check()
    stranger.train()
    stranger.watch()


def try_other(folder, kind, tag, versions):
    """The wheel that the first of these versions of Python builds, installed by each of them."""
    pythons = [python_of(version) for version in versions]
    if None in pythons:
        print(f"SKIPPED: Python {' and '.join(versions)}: not all are there")
        return
    run(pythons[0], "-m", "venv", folder / "builder")
    python = folder / "builder" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", *TOOLS)
    wheel = pack(python, kind, folder)
    assert tag in wheel.name, wheel
    for version, python in zip(versions, pythons, strict=True):
        place = folder / version
        place.mkdir()
        Stranger(python, wheel, place).check()


KINDS = {
    "own": try_own,
    "oldest": lambda folder: try_other(folder, "oldest", "-cp310-cp310-", ["3.10"]),
    "shared": lambda folder: try_other(folder, "shared", "-cp312-abi3-", ["3.12", "3.13"]),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        KINDS[sys.argv[1]](pathlib.Path(folder))


if __name__ == "__main__":
    main()
