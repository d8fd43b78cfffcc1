"""Starts the workers of a job on this host, and lets the others go on when one is lost.

    python -m isochron.launch -n 4 train.py --epochs 10
    python -m isochron.launch --workers 2,8 --node 1 --master first:29400 train.py      # the second of two hosts

Hosts may have unequal numbers of workers. Workers get torchrun's variables. The launcher of the first host keeps the
store where they meet, so that any of them may die.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from types import FrameType
from typing import Any

POLL_SECONDS = 0.02
EVICTION_SECONDS = 0.5
STORE_TIMEOUT = timedelta(minutes=5)


def counts_of(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: numbers above 0 with commas between, one for each host")
    return [int(count) for count in counts]


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: HOST:PORT of the first host")
    return host, int(port)


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m isochron.launch", description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--workers", type=counts_of, default=[1], metavar="N[,N…]",
                        help="workers of each host (1)")  # fmt: skip
    parser.add_argument("--node", type=int, default=0, metavar="I", help="which of the hosts this is, from 0 (0)")
    parser.add_argument("--master", type=address_of, default=("127.0.0.1", 0), metavar="HOST:PORT",
                        help="where the workers meet; needed for several hosts")  # fmt: skip
    parser.add_argument("script", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args(words)
    if not 0 <= options.node < len(options.workers):
        parser.error(f"--node is {options.node}; permitted: 0 to {len(options.workers) - 1}")
    if len(options.workers) > 1 and options.master[1] == 0:
        parser.error("--master is not given; permitted with several hosts: HOST:PORT of the first")
    return options


class Launcher:
    def __init__(self, options: argparse.Namespace) -> None:
        import torch.distributed as dist  # slow; bad usage is told before

        host, port = options.master
        self._store: Any = dist.TCPStore(
            host, port, is_master=options.node == 0, timeout=STORE_TIMEOUT, wait_for_workers=False
        )
        self._first = sum(options.workers[: options.node])
        count = options.workers[options.node]
        variables = {
            **os.environ,
            "MASTER_ADDR": host,
            "MASTER_PORT": str(self._store.port),
            "WORLD_SIZE": str(sum(options.workers)),
            "LOCAL_WORLD_SIZE": str(count),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "ISOCHRON_LAUNCH": "1",
        }
        variables.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // count, 1)))
        command = [sys.executable, options.script, *options.arguments]
        self.workers = {
            self._first + local: subprocess.Popen(
                command, env={**variables, "RANK": str(self._first + local), "LOCAL_RANK": str(local)}
            )
            for local in range(count)
        }

    def run(self) -> int:
        """0 if at least one worker ended well: the job is done then."""
        codes: dict[int, int] = {}
        look = 0.0
        while len(codes) < len(self.workers):
            for rank, worker in self.workers.items():
                if rank not in codes and worker.poll() is not None:
                    codes[rank] = worker.returncode
                    if worker.returncode != 0:
                        self._mourn(rank, worker)
            if time.monotonic() > look:
                self._execute_evictions(codes)
                look = time.monotonic() + EVICTION_SECONDS
            time.sleep(POLL_SECONDS)
        if 0 in codes.values():
            return 0
        code = next(iter(codes.values()))
        return 128 - code if code < 0 else code

    def _mourn(self, rank: int, worker: subprocess.Popen[bytes]) -> None:
        self._store.set(f"isochron/dead/{rank}", "")
        code = worker.returncode
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        print(f"isochron: rank {rank} on {socket.gethostname()} (process {worker.pid}) ended {how}", file=sys.stderr)

    def _execute_evictions(self, codes: dict[int, int]) -> None:
        for rank, worker in self.workers.items():
            if rank not in codes and self._store.check([f"isochron/evicted/{rank}"]):
                worker.kill()

    def signal(self, number: int, frame: FrameType | None) -> None:
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.send_signal(number)


def main(words: list[str] | None = None) -> int:
    launcher = Launcher(parse(words))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, launcher.signal)
    return launcher.run()


if __name__ == "__main__":
    sys.exit(main())
