#!/usr/bin/env python3
"""A step of the native engine against one of PyTorch's DistributedDataParallel with Gloo, on equal workers.

The same networks, batches, optimizer and number of threads, in turn so that drift of the machine hits both alike. Both
have local BatchNorm; a native step with exact BatchNorm, which DDP does not have on CPUs, is timed beside them. Prints
medians over all rounds; --json FILE writes the figures.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP = 5
# Samples per worker, and steps per round.
CASES = {"cnn": (64, 40), "resnet18": (16, 6)}
# What the program calls the networks below.
NAMES = {"cnn": "cnn:width=16", "resnet18": "resnet18"}


def make_cnn():
    def convolution(before, after):
        return nn.Conv2d(before, after, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(2, ceil_mode=True)

    return nn.Sequential(*convolution(3, 16), *convolution(16, 32), nn.Flatten(), nn.Linear(32 * 8 * 8, 128),
                         nn.ReLU(True), nn.Linear(128, 10))  # fmt: skip


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Sequential()
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_()))
        return (y + self.downsample(x)).relu_()


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True))
        widths = [64, 64, 128, 256, 512]
        self.stages = nn.Sequential(*(
            nn.Sequential(Block(before, after, 1 if before == after else 2), Block(after, after, 1))
            for before, after in zip(widths, widths[1:])))  # fmt: skip
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


MAKERS = {"cnn": make_cnn, "resnet18": ResNet18}


def time_ddp(rank, folder, name, ranks):
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    batch, steps = CASES[name]
    # Nothing but gradients is exchanged, as in the native engine.
    model = nn.parallel.DistributedDataParallel(MAKERS[name](), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.rand(batch, 3, 32, 32), torch.arange(batch) % 10
    times = []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - start)
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        result = {"parameters": parameters, "seconds": times[WARM_UP:]}
        pathlib.Path(folder, "result").write_text(json.dumps(result))
    dist.destroy_process_group()


def run_ddp(name, ranks):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(time_ddp, (folder, name, ranks), nprocs=ranks)
        return json.loads(pathlib.Path(folder, "result").read_text())


def run_native(name, ranks, norm):
    batch, steps = CASES[name]
    launcher = [ROOT / "tests/ranks/mpirun.sh", ROOT / ".venv/bin/mpirun", str(ranks)]
    program = [ROOT / "build/release/bin/engine_ddp_step", NAMES[name], str(batch * ranks), str(steps), norm]
    return json.loads(subprocess.run([*launcher, *program], capture_output=True, text=True, check=True).stdout)


def compare(name, options):
    runs = {"native": lambda: run_native(name, options.ranks, "local"), "ddp": lambda: run_ddp(name, options.ranks)}
    if name == "resnet18":
        runs["native_exact"] = lambda: run_native(name, options.ranks, "exact")
    times = {who: [] for who in runs}
    sizes = set()
    for number in range(options.rounds):
        for who in sorted(runs, reverse=number % 2 == 1):
            result = runs[who]()
            times[who] += result["seconds"]
            sizes.add(result["parameters"])
    if len(sizes) != 1:
        raise SystemExit(f"the networks named {name} differ: {sizes} parameters")
    figures = {"model": name, "ranks": options.ranks, "batch": CASES[name][0], "rounds": options.rounds}
    figures |= {f"{who}_seconds": statistics.median(times[who]) for who in runs}
    return figures | {"ratio": figures["native_seconds"] / figures["ddp_seconds"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()

    os.environ["OMP_NUM_THREADS"] = "1"
    results = []
    for name in CASES:
        figures = compare(name, options)
        results.append(figures)
        print("step of {model}, {batch} samples on each of {ranks} ranks: native {0:.1f} ms, DDP {1:.1f} ms, ratio "
              "{ratio:.2f}".format(1e3 * figures["native_seconds"], 1e3 * figures["ddp_seconds"], **figures)
              + (f"; native with exact BatchNorm {1e3 * figures['native_exact_seconds']:.1f} ms"
                 if "native_exact_seconds" in figures else ""), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
