"""Starts the workers of a peer as its guide says, reads their logs, and ends what it started."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import tempfile
import time

import environments

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRATCH = environments.PLACE / "logs"
EXCEPTION = re.compile(r"(?:\[rank\d+\]:\s*)?([\w.]*(?:Error|Exception)\b:.*)")
OPEN = []  # jobs that have to be ended


def free_ports(count=1):
    """The first of so many in a row."""
    while True:
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            port = door.getsockname()[1]
        if port + count < 60000:
            return port


def side_by_side(options, keep, one, cases):
    """one(options, lane, *case) gives a row; --together cases at the same time. A lane has two cores of its own."""
    for peer in dict.fromkeys(case[0] for case in cases):
        environments.python_of(peer, options.python, options.wheels)
    lanes = queue.SimpleQueue()
    for lane in range(options.together):
        lanes.put(lane)

    def run(case):
        lane = lanes.get()
        try:
            return one(options, lane, *case)
        finally:
            lanes.put(lane)

    with concurrent.futures.ThreadPoolExecutor(options.together) as threads:
        for row in threads.map(run, cases):
            keep(row)


def end_all(*_):
    """What a signal does."""
    for job in OPEN:
        job.end()
    os._exit(143)


def cores_of(options, lane):
    return f"{2 * lane},{2 * lane + 1}" if options.together > 1 else None


class Job:
    """A peer's workers. `place` has python (who has torch), wheels and isochron (the program)."""

    def __init__(self, peer, workers, arguments, place, cluster=None, restarts=0, lighthouse=(), absent=0,
                 cores=None):
        SCRATCH.mkdir(parents=True, exist_ok=True)
        self.peer, self.workers = peer, workers
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{peer}-", dir=SCRATCH))
        self._processes, self._ended, self._cores = [], False, cores
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_EXTENSIONS_DIR": str(environments.EXTENSIONS)}
        OPEN.append(self)
        self._port = free_ports(workers)
        module = environments.PEERS[peer].module
        python = environments.python_of(peer, place.python, place.wheels)
        self._script = [HERE / "worker.py", "--peer", peer, "--module", module, "--folder", self.folder, "--port",
                        self._port, "--absent", absent, *arguments]  # fmt: skip
        self._python = python
        if peer == "torchft":
            self._open_lighthouse(python, lighthouse)
        if cluster:
            command = [place.isochron, "launch", "--cluster", cluster, "--", python, *self._script]
            self._start("launcher", command)
        elif peer == "isochron":
            self._start("launcher", [python, "-m", "isochron.launch", "-n", workers, *self._script])
        elif restarts:
            torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node", workers, "--max-restarts", restarts]
            self._start("launcher", [*torchrun, "--master-addr", "127.0.0.1", *self._script])
        else:
            for rank in range(workers - absent):
                self.add(rank)

    def add(self, rank):
        """One worker; more may come later."""
        place = {"RANK": str(rank), "WORLD_SIZE": str(self.workers), "LOCAL_RANK": str(rank)}
        self._start(f"worker-{rank}", [self._python, *self._script], place)

    def _open_lighthouse(self, python, options):
        port = free_ports()
        words = ["--bind", f"127.0.0.1:{port}", "--min_replicas", "1", "--quorum_tick_ms", "100", *options]
        self._start("lighthouse", [python, HERE / "lighthouse.py", *words])
        self._environment["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{port}"
        time.sleep(1)

    def _start(self, name, command, variables=None):
        if self._cores:
            command = ["taskset", "-c", self._cores, *command]
        output = (self.folder / f"{name}.txt").open("w")
        self._processes.append(subprocess.Popen(
            [str(one) for one in command], env={**self._environment, **(variables or {})}, stdout=output,
            stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True))  # fmt: skip

    def log(self, rank):
        """Its lines so far. A worker that was started again goes on in the same file."""
        path = self.folder / f"{rank}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def steps(self, rank):
        return [line for line in self.log(rank) if "samples" in line]

    def all_steps(self):
        return [self.steps(rank) for rank in range(self.workers)]

    def pid(self, rank):
        return self.log(rank)[0]["pid"]

    def alive(self, rank):
        with contextlib.suppress(OSError, IndexError):
            state = pathlib.Path("/proc", str(self.pid(rank)), "stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z"
        return False

    def ran_out(self):
        """Whether nobody trains any more."""
        return not any(self.alive(rank) for rank in range(self.workers))

    def wait(self, enough, seconds):
        """Whether it came so far in time and before all had ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if enough():
                return True
            if all(one.poll() is not None for one in self._processes[1 if self.peer == "torchft" else 0 :]):
                return bool(enough())
            time.sleep(0.01)
        return False

    def tail(self, lines=12):
        """What the processes said last, for who looks for the reason."""
        texts = [f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
                 for path in sorted(self.folder.glob("*.txt"))]  # fmt: skip
        return "\n".join(texts)

    def error(self):
        """The last line of an exception that a worker met."""
        for path in sorted(self.folder.glob("*.txt")):
            for line in reversed(path.read_text(errors="replace").splitlines()):
                if found := EXCEPTION.match(line):
                    return found[1][:200]
        return ""

    def failed(self, row):
        """The row says why; so does the output, at length."""
        print(self.tail(), flush=True)
        return {**row, "failed": self.error() or "did not come so far"}

    def end(self):
        if self._ended:
            return
        self._ended = True
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 5
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.1))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # its session, which is of our making
            process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()
