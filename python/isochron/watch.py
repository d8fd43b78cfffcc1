"""Runs a training script of PyTorch as it is, and says what it would gain with Isochron: who is slow, how long the
others wait, and how many times as fast the job would be.

    torchrun --nproc-per-node 2 -m isochron.watch train.py --epochs 10
    python -m isochron.launch -n 2 --watch train.py --epochs 10

The first optimizer that takes a step is watched, with the DDP or FSDP2 model whose parameters it has. A script that
needs more says `isochron.torch.watch(model, optimizer)` itself.
"""

from __future__ import annotations

import argparse
import gc
import runpy
import sys
from pathlib import Path
from typing import Any

from isochron.arguments import Parser
from isochron.log_files import trouble_of_writing

LOG = "isochron-watch.jsonl"
STEPS = 30
FEWEST = 8  # steps that say something


def steps_of(text: str) -> int:
    if not text.isdecimal() or int(text) < FEWEST:
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: {FEWEST} or more")
    return int(text)


def file_of(text: str) -> str:
    if trouble := trouble_of_writing(text):
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: a file that can be written ({trouble})")
    return text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of the watch; isochron.launch has them, too."""
    parser.add_argument("--watch-log", type=file_of, metavar="FILE", help=f"the watch's run log ({LOG})")
    parser.add_argument("--watch-steps", type=steps_of, metavar="N", help=f"that are watched ({STEPS})")
    parser.add_argument("--no-probe", action="store_true", help="the watch computes nothing that the script would not")


def given_options(options: argparse.Namespace) -> list[str]:
    """As they were typed."""
    words = []
    if options.watch_log is not None:
        words += ["--watch-log", options.watch_log]
    if options.watch_steps is not None:
        words += ["--watch-steps", str(options.watch_steps)]
    return words + ["--no-probe"] * options.no_probe


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m isochron.watch", description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("script", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args(arguments)
    if not Path(options.script).is_file():
        parser.error(f"script is '{options.script}'; permitted: a file")
    return options


def find_model(optimizer: Any) -> Any:
    """The wrapped model whose parameters the optimizer has; None if there is none."""
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from isochron.torch.parallel import is_fsdp

    trained = {id(one) for group in optimizer.param_groups for one in group["params"]}
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    wrapped = [one for one in modules if isinstance(one, DistributedDataParallel) or is_fsdp(one)]
    mine = [one for one in wrapped if any(id(parameter) in trained for parameter in one.parameters())]
    return max(mine, key=lambda one: sum(1 for _ in one.modules()), default=None)


def watch_first_optimizer(**options: Any) -> None:
    """From the first step of an optimizer on, as soon as a wrapped model is known."""
    from isochron.torch.watching import watch  # first: it says what to install where there is no torch

    from torch.optim.optimizer import register_optimizer_step_post_hook  # isort: skip

    def begin(optimizer: Any, *unused: Any) -> None:
        handle.remove()
        model = find_model(optimizer)
        if model is None:
            print("isochron: no DDP or FSDP2 model is trained here; nothing is watched", file=sys.stderr)
        else:
            watch(model, optimizer, **options)

    handle = register_optimizer_step_post_hook(begin)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    log, steps = options.watch_log or LOG, options.watch_steps or STEPS
    watch_first_optimizer(log=log, steps=steps, probe=not options.no_probe)
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = str(Path(options.script).resolve().parent)
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
