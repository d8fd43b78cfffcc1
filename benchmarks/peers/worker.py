#!/usr/bin/env python3
"""One worker of a duel, in its peer's environment: run.py starts it."""

import argparse
import importlib
import os
import pathlib
import sys

import duel


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--module", required=True, help="with_MODULE.py has its loop")
    parser.add_argument("--folder", required=True, help="of the logs")
    parser.add_argument("--port", type=int, required=True, help="where they meet")
    parser.add_argument("--batch", type=int, required=True, help="of all workers together")
    parser.add_argument("--steps", type=int, default=1000000000)
    parser.add_argument("--task", default="mlp", choices=["mlp", "cnn"])
    parser.add_argument("--samples", type=int, default=12800)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--shares", default="", help="samples of each worker, where they are given")
    parser.add_argument("--pace", default="0", help="milliseconds a sample that each worker takes longer")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--by-hand", action="store_true", help="the loss is weighted by the user (TensorFlow: is not)")
    parser.add_argument("--ids", action="store_true", help="log which samples")
    parser.add_argument("--snapshots", type=int, default=0, help="save parameters every so many steps")
    parser.add_argument("--restarts", action="store_true", help="save for torchrun's restarts")
    parser.add_argument("--matchmaking", type=float, default=3.0, help="Hivemind's")
    parser.add_argument("--absent", type=int, default=0, help="workers that come later")
    return parser.parse_args()


def main():
    options = parse()
    run = duel.Run(options)
    if options.peer != "isochron" and "TORCHELASTIC_RUN_ID" not in os.environ:  # who find their place by themselves
        run.publish()
    importlib.import_module(f"with_{options.module}").train(run)
    run.note(end=True)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
    sys.stdout.flush()
    os._exit(0)  # what others' threads wait for is not ours
