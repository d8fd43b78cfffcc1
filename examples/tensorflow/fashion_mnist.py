"""Fashion-MNIST as arrays, from the Debian package dataset-fashion-mnist."""

import gzip
import pathlib
import sys

import numpy as np

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read(name, header):
    with gzip.open(FOLDER / name) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def load():
    """(images, labels) to train on, as many as the program's first argument says, and to test on."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 60000
    parts = []
    for part in ("train", "t10k"):
        images = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)[:most]
        labels = read(f"{part}-labels-idx1-ubyte.gz", 8)[:most]
        parts.append((images.astype("float32") / 255, labels.astype("int64")))
    return parts
