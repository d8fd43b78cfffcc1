"""Real processes in one process group, and a way to run a function of torch_cases.py in all of them."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import Listener, wait

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests/python'}:{ROOT / 'tests/faults'}",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# A process that keeps a store and says at which port.
STORE = """
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
input()
"""


def stop(process):
    """A child of this process; when this returns, none of its threads goes on."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


class Nursery:
    """The process that forks ranks; it dies with the tests."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self._listener = Listener(str(pathlib.Path(self._folder.name) / "socket"))
        command = [sys.executable, ROOT / "tests/python/nursery.py", self._listener.address]
        self.process = subprocess.Popen(command, env=ENVIRONMENT)
        self._wishes = self._accept()
        self._born = 0

    def _accept(self):
        """A connection of the process, or of one that it has forked; it may not have been able to start."""
        while not wait([self._listener._listener._socket], 1.0):
            assert self.process.poll() is None, f"{self.process.args[1]} has ended with {self.process.returncode}"
        return self._listener.accept()

    def fork(self):
        """The connection to a new process, and its number."""
        self._born += 1
        self._wishes.send(self._born)
        rank = self._accept()
        number, process = rank.recv()
        assert number == self._born
        return rank, process

    def close(self):
        self._wishes.close()
        self.process.wait(60)
        self._listener.close()
        self._folder.cleanup()


class Ranks:
    """A process group of `size` processes; 0: a process without a group. The first one keeps the store, unless there is
    one at `port`. `backends` may differ from rank to rank."""

    def __init__(self, nursery, size, port=0, backends=None):
        born = [nursery.fork() for _ in range(max(size, 1))]
        self.connections = [connection for connection, _ in born]
        self.processes = [process for _, process in born]
        for rank, connection in enumerate(self.connections):
            connection.send((rank, size, port, backends[rank] if backends else "gloo"))
            port = connection.recv() if size > 0 else 0

    def run(self, case, **arguments):
        """What every rank returned; an AssertionError with the traces of those that raised."""
        self.start(case, **arguments)
        replies = [self._reply(rank) for rank in range(len(self.connections))]
        raised = [f"rank {rank}:\n{value}" for rank, (worked, value) in enumerate(replies) if not worked]
        assert not raised, "\n".join(raised)
        return [value for _, value in replies]

    def start(self, case, **arguments):
        for connection in self.connections:
            connection.send((case, arguments))

    def result(self, rank):
        worked, value = self._reply(rank)
        assert worked, f"rank {rank}:\n{value}"
        return value

    def _reply(self, rank):
        """Ranks wait for each other for up to 600 s (nursery.py)."""
        assert self.connections[rank].poll(900), f"rank {rank} does not answer"
        return self.connections[rank].recv()

    def kill(self, rank, number=signal.SIGKILL):
        os.kill(self.processes[rank], number)

    def close(self):
        for connection, process in zip(self.connections, self.processes, strict=True):
            connection.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
