#!/usr/bin/env python3
"""The peers, each in an environment of its own under build/peers, with pinned versions, installed when first needed.

    benchmarks/peers/environments.py torchft hivemind        installs these; without names, all
    benchmarks/peers/environments.py --fetch build/peers/wheels --for-python 3.12 torchft accelerate
    benchmarks/peers/environments.py --wheels build/peers/wheels --python PYTHON torchft accelerate

The second form fetches what a machine without network needs, the third installs it there. PyTorch
is the one of .venv for all of them, so that peers differ in nothing else; TensorFlow is the one of .venv-tf.
"""

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build/peers"
THERE = ("pip", "setuptools", "wheel", "numpy", "scipy", "torch")  # not fetched for a machine without network
FROM_BASE = {  # what peers find in .venv here
    "torchft": ("protobuf==7.36.2",),
    "adaptdl": ("setuptools==80.9.0",),
    "hivemind": ("protobuf==7.36.2", "grpcio==1.85.1", "packaging==26.3", "typing_extensions==4.16.0"),
    "accelerate": ("packaging==26.3",),
    "lightning": ("packaging==26.3",),
}
EXTENSIONS = PLACE / "extensions"  # what DeepSpeed compiles


@dataclasses.dataclass(frozen=True)
class Peer:
    """`module` has its loop: with_MODULE.py. `packages` come into the environment `name`; none: `base` itself."""

    title: str
    module: str
    packages: tuple = ()
    base: str = ".venv"


PEERS = {
    "isochron": Peer("Isochron", "isochron"),
    "ddp": Peer("PyTorch 2.13 DDP", "ddp"),
    "fsdp2": Peer("PyTorch 2.13 FSDP2", "ddp"),
    "accelerate": Peer("Accelerate 1.15.0", "accelerate", ("accelerate==1.15.0",)),
    "lightning": Peer("Lightning 2.6.6", "lightning", ("lightning==2.6.6",)),
    "deepspeed": Peer("DeepSpeed 0.19.8, ZeRO-1", "deepspeed", ("setuptools", "wheel", "deepspeed==0.19.8")),
    "torchft": Peer("torchft 0.2.0", "torchft", ("torchft==0.2.0",)),
    "adaptdl": Peer("AdaptDL 0.2.11", "adaptdl", ("adaptdl==0.2.11", "requests", "setuptools<81")),
    "hivemind": Peer("Hivemind 1.1.12", "hivemind", ("hivemind==1.1.12",)),
    "multiworker": Peer("TensorFlow 2.21 MultiWorkerMirroredStrategy", "tensorflow", base=".venv-tf"),
}


def site_of(python):
    """Where this interpreter's packages are; with --system-site-packages, the outer ones, too."""
    code = "import sys; print('\\n'.join(p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))))"
    return subprocess.check_output([python, "-c", code], text=True)


def python_of(name, base=None, wheels=None):
    """The interpreter of a peer, whose environment is made if it is not there. `base` is who has torch."""
    peer = PEERS[name]
    base = base if base and peer.base == ".venv" else ROOT / peer.base / "bin/python"
    if not peer.packages:
        return base
    place = PLACE / name
    python = place / "bin/python"
    mark = place / "installed"
    if mark.exists() and mark.read_text().split() == list(peer.packages):
        return python
    print(f"installing {', '.join(peer.packages)} into {place}", file=sys.stderr, flush=True)
    subprocess.run([base, "-m", "venv", *(["--without-pip"] if wheels else []), place], check=True)
    own = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    pathlib.Path(own, "shared.pth").write_text(site_of(base))  # behind its own packages
    if wheels:
        unpack(pathlib.Path(wheels, name), pathlib.Path(own))
    else:
        install(name, python)
    mark.write_text("\n".join(peer.packages) + "\n")
    return python


def install(name, python):
    variables = {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(EXTENSIONS)}
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS[name].packages]
    subprocess.run(command, check=True, env={**os.environ, **variables})
    if name == "deepspeed":  # compiles its exchange through shared memory when it is first used: once, by one process
        variables |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29581"}
        code = "import deepspeed; deepspeed.init_distributed(dist_backend='gloo')"
        subprocess.run([python, "-c", code], check=True, env={**os.environ, **variables})


def fetch(name, folder, version):
    """Wheels of a peer and of what it needs but for what is large and already on the other machine."""
    target = pathlib.Path(folder, name)
    python = python_of(name)
    code = ("import importlib.metadata as m, site; print(*(f'{d.metadata[\"Name\"]}=={d.version}' "
            "for d in m.distributions(path=site.getsitepackages())))")  # fmt: skip
    wanted = [one for one in subprocess.check_output([python, "-c", code], text=True).split()
              if one.split("==")[0].lower() not in THERE]  # fmt: skip
    platforms = [word for kind in ("manylinux_2_34", "manylinux_2_28", "manylinux2014", "manylinux_2_17")
                 for word in ("--platform", f"{kind}_x86_64")]  # fmt: skip
    command = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", target, "--no-deps",
               "--only-binary=:all:", "--python-version", version, *platforms]  # fmt: skip
    for one in [*wanted, *FROM_BASE.get(name, ())]:
        if subprocess.run([*command, one], stderr=subprocess.DEVNULL).returncode:  # no wheel: it is Python alone
            make = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target, one]
            subprocess.run(make, check=True)


def unpack(folder, own):
    """Wheels are archives of what is to lie among the packages. That machine may have no pip."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(own)
    for path in own.glob("hivemind/hivemind_cli/p2pd"):
        path.chmod(0o755)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--fetch", metavar="FOLDER", help="fetch wheels into it, and install nothing")
    parser.add_argument("--for-python", default="3.12", metavar="VERSION", help="with --fetch (3.12)")
    parser.add_argument("--wheels", type=pathlib.Path, metavar="FOLDER", help="install from it, without pip")
    parser.add_argument("--python", type=pathlib.Path, help="which has torch; else .venv's")
    options, _ = parser.parse_known_args()
    for name in options.peers or PEERS:
        if name not in PEERS:
            parser.error(f"PEER is '{name}'; permitted: {', '.join(PEERS)}")
        if not options.fetch:
            print(python_of(name, options.python, options.wheels))
        elif PEERS[name].packages:
            fetch(name, options.fetch, options.for_python)


if __name__ == "__main__":
    main()
