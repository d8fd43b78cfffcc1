"""Starts the workers of a job on this host, and lets the others go on when one is lost.

    python -m isochron.launch -n 4 train.py --epochs 10
    python -m isochron.launch -n 4 --watch train.py             # of any kind: what would it gain? (isochron.watch)
    python -m isochron.launch --workers 2,8 --node 1 --master first:29400 --key-file key train.py  # second of two hosts

Hosts may have unequal numbers of workers. Workers get torchrun's variables. The launcher of the first host keeps the
store of their rendezvous, so that any of them may die; it stays until the launchers of all hosts are done. What
launchers and workers tell each other there is sealed with the job's key (isochron.job_key), which workers find in a
variable.
Where no torch is installed, no worker can use its store: the launchers then have one of their own (isochron.board).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Protocol

from isochron import door, job_key, watch
from isochron.arguments import Parser
from isochron.errors import Error
from isochron.processes import state_of
from isochron.served import reach

POLL_SECONDS = 0.02
LOOK_SECONDS = 0.5  # between two looks at the store and at who is stopped
STOPPED_LOOKS = 10  # so often everybody who is left was stopped: nobody waits for them any longer
LOST_SECONDS = 60.0  # without a sign of another host's launcher
STORE_TIMEOUT = timedelta(minutes=5)
HOST_WORDS = re.compile(r"(?P<state>running|still|done) (?P<ended>[0-9]{1,9}) [0-9]+")  # what a host's launcher says

# The kernel ends a worker when its launcher is gone, however that came. It must be asked for in the worker itself.
WITH_PARENT = """
import ctypes, os, signal, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux has it
if prctl is not None:
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def counts_of(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: numbers above 0 with commas between, one for each host")
    return [int(count) for count in counts]


def seconds_of(text: str) -> float:
    with suppress(ValueError):
        if 0.0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"'{text}'; permitted: seconds above 0")


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}'; permitted: HOST:PORT of the first host")
    return host, int(port)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m isochron.launch", description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--workers", type=counts_of, default=[1], metavar="N[,N…]",
                        help="workers of each host (1)")  # fmt: skip
    parser.add_argument("--node", type=int, default=0, metavar="I", help="which of the hosts this is, from 0 (0)")
    parser.add_argument("--master", type=address_of, default=("127.0.0.1", 0), metavar="HOST:PORT",
                        help="the rendezvous of the workers; needed for several hosts")  # fmt: skip
    parser.add_argument("--key-file", metavar="FILE",
                        help="with the job's secret, the same on all hosts, for its owner alone (mode 0600); needed "
                        f"for several hosts unless {job_key.VARIABLE} is set")  # fmt: skip
    parser.add_argument("--stop-timeout", type=seconds_of, default=300.0, metavar="SECONDS",
                        help="until workers must end that were asked to, or are all stopped (300)")  # fmt: skip
    parser.add_argument("--watch", action="store_true",
                        help="a script that knows nothing of Isochron: say what it would gain")  # fmt: skip
    watch.add_options(parser)
    parser.add_argument("script", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args(arguments)
    if not 0 <= options.node < len(options.workers):
        parser.error(f"--node is {options.node}; permitted: 0 to {len(options.workers) - 1}")
    if (watched := watch.given_options(options)) and not options.watch:
        parser.error(f"{watched[0]} is given without --watch; permitted: with it")
    if len(options.workers) > 1 and options.master[1] == 0:
        parser.error("--master is not given; permitted with several hosts: HOST:PORT of the first")
    try:
        options.key = job_key.read(options.key_file) if options.key_file else os.environ.get(job_key.VARIABLE, "")
        if not options.key and len(options.workers) > 1:
            parser.error(
                "--key-file is not given; permitted with several hosts: a file that holds the same secret on all of "
                f"them and that nobody else can read, or the variable {job_key.VARIABLE}"
            )
        options.key = options.key or job_key.make()
        job_key.checked(options.key, job_key.VARIABLE)
    except ValueError as error:
        parser.error(f"--{error}" if options.key_file else str(error))
    return options


class Marks(Protocol):
    """What launchers and workers tell each other. Both raise RuntimeError or OSError when the first host is gone."""

    def set(self, name: str, value: str) -> None: ...

    def get(self, name: str) -> str | None: ...


class Launcher:
    def __init__(self, options: argparse.Namespace) -> None:
        self._node, self._hosts = options.node, len(options.workers)
        self._first = sum(options.workers[: options.node])
        self._marks: Marks | None
        host, port, self._marks = self._open_store(options.master, job_key.checked(options.key, job_key.VARIABLE))
        self._codes: dict[int, int] = {}  # of workers that have ended, in that order
        self._stopped_looks = 0
        self._looks = 0
        self._signals = 0
        self._stop_timeout = options.stop_timeout
        self._asked: float | None = None  # the workers, to end
        self._all_stopped: float | None = None  # since when nobody has run
        count = options.workers[options.node]
        variables = {
            **os.environ,
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(sum(options.workers)),
            "LOCAL_WORLD_SIZE": str(count),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "ISOCHRON_LAUNCH": "1",
            job_key.VARIABLE: options.key,
        }
        variables.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // count, 1)))
        if self._hosts == 1:
            variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
        command = [sys.executable, "-ISc", WITH_PARENT, str(os.getpid()), sys.executable]
        if options.watch:
            command += ["-m", "isochron.watch", *watch.given_options(options)]
        command.append(options.script)
        self.workers = {
            self._first + local: subprocess.Popen(
                [*command, *options.arguments],
                env={**variables, "RANK": str(self._first + local), "LOCAL_RANK": str(local)},
            )
            for local in range(count)
        }

    def _open_store(self, master: tuple[str, int], key: bytes) -> tuple[str, int, Marks]:
        """On loopback for one host, else on the interface of --master. torch's own way would be all interfaces."""
        host, port = master
        if self._hosts == 1:
            host = reach.LOOPBACK
        where = f"--master is '{host}:{port}'"
        if self._node > 0:
            try:
                return host, port, _join_store(host, port, key)
            except (RuntimeError, OSError) as error:
                text = str(error).splitlines()[0]
                raise Error(f"{where}; permitted: where the launcher of the first host answers ({text})") from error
        if not reach.is_loopback(host):
            host = reach.own_address(["this host", "others"], host)
        try:
            listener = door.listen(host, port)
            while port == 0 and not _is_free(host, listener.getsockname()[1] + 1):
                listener.close()
                listener = door.listen(host)
        except OSError as error:
            raise Error(f"{where}; permitted: an address of this host with a free port ({error.strerror})") from error
        port = listener.getsockname()[1]
        return host, port, _keep_store(listener, key)

    def run(self) -> int:
        """0 if the last worker to end has ended well: those that were lost before it were not needed."""
        look = 0.0
        while len(self._codes) < len(self.workers):
            self._note_the_ended()
            if time.monotonic() > look:
                self._look()
                look = time.monotonic() + LOOK_SECONDS
            time.sleep(POLL_SECONDS)
        self._publish("done")
        if self._node == 0:
            self._await_other_hosts()
        codes = list(self._codes.values())
        failure = next((code for code in codes if code != 0), 0) if codes[-1] != 0 else 0
        return 128 - failure if failure < 0 else failure

    def _note_the_ended(self) -> None:
        polled = {rank: worker.poll() for rank, worker in self.workers.items() if rank not in self._codes}
        ended = [(rank, code) for rank, code in polled.items() if code is not None]
        for rank, code in sorted(ended, key=lambda one: one[1] == 0):  # of those at once failures count as earlier
            self._codes[rank] = code
            if code != 0:
                self._note_death(rank, code)

    def _note_death(self, rank: int, code: int) -> None:
        self._tell(f"dead/{rank}", "")
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        self._say(f"rank {rank} on {socket.gethostname()} (process {self.workers[rank].pid}) ended {how}")

    def _look(self) -> None:
        """Ends those whom the others have evicted, those who are stopped when nobody else is left, and those who do not
        end though they were asked to."""
        left = {rank: worker for rank, worker in self.workers.items() if rank not in self._codes}
        for rank, worker in left.items():
            if self._hear(f"evicted/{rank}") is not None:
                worker.kill()
        stopped = all(state_of(worker.pid) == "T" for worker in left.values())
        self._stopped_looks = self._stopped_looks + 1 if left and stopped else 0
        still = self._stopped_looks >= STOPPED_LOOKS
        self._publish("still" if still else "running")
        others = self._other_hosts()
        nobody_runs = still and not any(state == "running" for state, _ in others)
        now = time.monotonic()
        self._all_stopped = (self._all_stopped or now) if nobody_runs else None
        if nobody_runs and len(self._codes) + sum(ended for _, ended in others) > 0:
            self._kill(left, "is stopped and nobody else is left")
        elif self._all_stopped is not None and now > self._all_stopped + self._stop_timeout:
            self._kill(left, f"has been stopped, and nobody else runs, for {self._stop_timeout:g} s")
        elif self._asked is not None and now > self._asked + self._stop_timeout:
            self._kill(left, f"did not end within {self._stop_timeout:g} s after it was asked to")

    def _kill(self, left: dict[int, subprocess.Popen[bytes]], why: str) -> None:
        for rank, worker in left.items():
            self._say(f"rank {rank} (process {worker.pid}) {why}; it is killed")
            worker.kill()

    # The launchers of several hosts.

    def _publish(self, state: str) -> None:
        if self._hosts > 1:
            self._looks += 1
            self._tell(f"host/{self._node}", f"{state} {len(self._codes)} {self._looks}")

    def _other_hosts(self) -> list[tuple[str, int]]:
        """Says of each how its workers are and how many have ended; one that has said nothing yet, or nothing that can
        be read, counts as running."""
        said = [self._hear(f"host/{node}") for node in range(self._hosts) if node != self._node]
        found = [HOST_WORDS.fullmatch(text or "") for text in said]
        return [(words["state"], int(words["ended"])) if words else ("running", 0) for words in found]

    def _await_other_hosts(self) -> None:
        heard: dict[int, tuple[str | None, float]] = {}
        waiting = set(range(1, self._hosts))
        while waiting and self._signals == 0:
            for node in list(waiting):
                text, now = self._hear(f"host/{node}"), time.monotonic()
                if node not in heard or heard[node][0] != text:
                    heard[node] = text, now
                if (text or "").startswith("done "):
                    waiting.remove(node)
                elif now - heard[node][1] > LOST_SECONDS:
                    self._say(f"host {node} has not been heard of for {LOST_SECONDS:g} s; it is not waited for")
                    waiting.remove(node)
            time.sleep(POLL_SECONDS)

    # The store, whose host may be gone: the workers then go on as long as they do not need it.

    def _tell(self, name: str, text: str) -> None:
        if self._marks is not None:
            try:
                self._marks.set(name, text)
            except (RuntimeError, OSError) as error:
                self._lose_store(error)

    def _hear(self, name: str) -> str | None:
        if self._marks is not None:
            try:
                return self._marks.get(name)
            except (RuntimeError, OSError) as error:
                self._lose_store(error)
        return None

    def _lose_store(self, error: Exception) -> None:
        self._marks = None
        text = str(error).splitlines()[0]
        self._say(f"the store on the first host is lost, so that no more workers can be ({text})")

    def _say(self, text: str) -> None:
        print(f"isochron: {text}", file=sys.stderr, flush=True)

    def signal(self, number: int, frame: FrameType | None) -> None:
        """The first one is for the workers; a second one ends them."""
        self._signals += 1
        self._asked = self._asked or time.monotonic()
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.send_signal(number if self._signals == 1 else signal.SIGKILL)
                worker.send_signal(signal.SIGCONT)  # who is stopped would not hear it


def _is_free(host: str, port: int) -> bool:
    """TensorFlow's workers have their rendezvous at the port after that of the store."""
    with suppress(OSError, OverflowError):
        door.listen(host, port).close()
        return True
    return False


def _has_torch() -> bool:
    """Also for the workers, which run the same interpreter."""
    return importlib.util.find_spec("torch") is not None


def _keep_store(listener: socket.socket, key: bytes) -> Marks:
    if not _has_torch():
        from isochron.board import Board

        return Board(listener, key)
    import torch.distributed as dist  # slow; bad usage is told before

    from isochron.torch.sealed import SealedStore

    host, port = listener.getsockname()[:2]
    store = dist.TCPStore(host, port, is_master=True, timeout=STORE_TIMEOUT, wait_for_workers=False,
                          master_listen_fd=listener.detach())  # fmt: skip
    return SealedStore(store, key, STORE_TIMEOUT.total_seconds())


def _join_store(host: str, port: int, key: bytes) -> Marks:
    if not _has_torch():
        from isochron.board import RemoteBoard

        return RemoteBoard(host, port, key, STORE_TIMEOUT.total_seconds())
    import torch.distributed as dist

    from isochron.torch.sealed import SealedStore

    store = dist.TCPStore(host, port, timeout=STORE_TIMEOUT, wait_for_workers=False)
    return SealedStore(store, key, STORE_TIMEOUT.total_seconds())


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        launcher = Launcher(options)
    except Error as error:
        print(f"isochron: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, launcher.signal)
    return launcher.run()


if __name__ == "__main__":
    sys.exit(main())
