"""Tries every cell of the fault matrix (cells.py) and compares the table of docs/guarantees.md with it.

Jobs of real processes run three at a time, since they mostly wait; every cell is a test of its own that waits for its
job. The variable ISOCHRON_BIN says where elastic_worker and async_worker are, MPIRUN what starts them.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "tests/faults")]

import cells  # noqa: E402
import protocol  # noqa: E402
from ranks import ENVIRONMENT, Nursery, Ranks  # noqa: E402

AT_ONCE = 3  # jobs
TIMEOUT = {"stop": 6.0}  # of jobs, in seconds; without recovery and at the rendezvous it is waited for, too
LONG = 300.0  # a job that takes so long hangs, however busy the machine is
CELLS = {cell.name: cell for cell in cells.CELLS}


class TorchJobs:
    """Jobs of forked ranks; their store is here, as it is the launcher's otherwise."""

    def __init__(self):
        self._nursery = None
        self._lock = threading.Lock()

    def run(self, cell):
        """What became of every rank: its answer, or None if it died, and which rank was struck."""
        import torch.distributed as dist

        victim = 0 if cell.fault == "kill-first" or cell.fault == "disk" else 1
        size = 4 if cell.phase == "join" else 3
        arguments = {"sync": cell.sync, "phase": cell.phase, "fault": cell.fault.split("-")[0], "victim": victim,
                     "timeout": 6.0 if cell.fault == "stop" or cell.phase == "rendezvous" else 120.0}  # fmt: skip
        if cell.front.endswith("without recovery"):
            arguments["elastic"] = False
        if cell.phase == "join":
            arguments["first_lost"] = size - 1
        if cell.fault == "nan-skip":
            arguments["numbers"] = "skip"
        store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        with self._lock:
            self._nursery = self._nursery or Nursery()
            ranks = Ranks(self._nursery, size, store.port)
        with tempfile.TemporaryDirectory() as folder:
            ranks.start("torch_worker:tried", folder=folder, **arguments)
            answers = [self._answer(ranks, rank, cell.fault == "stop" and rank == victim) for rank in range(size)]
        ranks.close()
        return answers, victim

    @staticmethod
    def _answer(ranks, rank, stopped):
        with contextlib.suppress(EOFError, OSError):
            if stopped:
                return None
            if not ranks.connections[rank].poll(LONG):
                return {"end": "hang"}
            worked, value = ranks.connections[rank].recv()
            return value if worked else {"end": "trace", "words": value}
        return None

    def close(self):
        if self._nursery:
            self._nursery.close()


def check_torch(cell, answers, victim):
    survivors = [answer for answer in answers if answer is not None]
    expected = {"on": "on", "smaller": "on", "skipped": "on", "named": "named", "all": "numbers",
                "told": "error"}[cell.outcome]  # fmt: skip
    assert survivors and all(answer["end"] == expected for answer in survivors), answers
    if expected == "on":
        assert len({str(answer["values"]) for answer in survivors}) == 1
        assert len({answer["step"] for answer in survivors}) == 1
        assert all(answer["complete"] != (cell.phase == "leave") for answer in survivors)
        whole = cell.outcome != "on" or cell.phase == "end"
        assert all(answer["size"] == (3 if whole else 2) for answer in survivors), answers
        if cell.phase != "end":
            lost = "evicted" if cell.fault == "stop" else "death"
            kind = {"smaller": "out-of-memory", "skipped": "numbers"}.get(cell.outcome, lost)
            assert all(kind in answer["events"] for answer in survivors), answers
        assert len(survivors) == (3 if cell.outcome != "on" else 2)
    elif expected == "error":
        assert all("No space left on device" in answer["words"] for answer in survivors), answers
    elif expected == "named":
        assert any(victim in answer["ranks"] for answer in survivors), answers
    else:
        assert len(survivors) == 3 and all(f"worker-{victim} (rank {victim}" in answer["words"] for answer in survivors)


NATIVE = {  # phase: what strikes worker %d
    "bsp": {"step": "5:%d:forward", "reduction": "5:%d:reduce:300", "optimizer": "5:%d:before-optimizer",
            "checkpoint": "6:%d:save:0", "evaluation": "6:%d:evaluate", "leave": "12:%d:forward",
            "end": "12:%d:after-optimizer"},
    "async": {"step": "%d:4:forward", "reduction": "%d:4:push:0", "optimizer": "%d:4:free:0",
              "evaluation": "%d:1:meeting"},
}  # fmt: skip
VICTIMS = {"kill": (2,), "kill-first": (0,), "kill-two": (0, 2), "stop": (2,)}


def run_native(cell):
    """Lines that the workers who reached the end wrote down, and what was said."""
    program = "elastic_worker" if cell.sync == "bsp" else "async_worker"
    words = {"bsp": ["steps=12", "evaluate=2", "save=3"], "asp": ["sync=asp"], "ssp": ["sync=ssp", "staleness=2"],
             "ssp 0": ["sync=ssp", "staleness=0"]}[cell.sync]  # fmt: skip
    if cell.fault == "memory":
        words += ["policy=uniform", "4:1:memory"]
    elif cell.fault.startswith("nan"):
        what = "always-nan" if cell.phase == "step" else "nan-gradient"
        words += ["model=plain", f"4:1:{what}", *(["numbers=skip"] if cell.fault == "nan-skip" else [])]
    else:
        places = NATIVE["bsp" if cell.sync == "bsp" else "async"]
        place = places[cell.phase] if cell.fault != "stop" else re.sub("forward", "stop", places[cell.phase])
        words += [place % victim for victim in VICTIMS[cell.fault]]
        words += ["timeout=4000"] if cell.fault == "stop" else []
    binary = pathlib.Path(os.environ["ISOCHRON_BIN"]) / program
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "tests/ranks/mpirun.sh", os.environ["MPIRUN"], "4", binary, folder, *words]
        if cell.sync == "bsp":
            command[:0] = [ROOT / "tests/elastic/outlived.sh", binary, folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)  # fmt: skip
        try:
            said, _ = process.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return [], "it hangs: " + process.communicate()[0]
        ends = [path.read_text() for path in pathlib.Path(folder).iterdir() if path.suffix in (".log", ".end")]
    return ends, said


def check_native(cell, ends, said):
    if cell.sync != "bsp":
        left = 4 - len(VICTIMS[cell.fault])
        assert len(ends) == left, said
        for end in ends:
            assert f"ranks {left} complete 1" in end and end.split("used ")[1].startswith("600 600 600"), end
        assert len({end.split("digest ")[1].split()[0] for end in ends}) == 1
        return
    ended = [text for text in ends if re.search(r"^end ", text, re.MULTILINE)]
    if cell.outcome == "all":
        assert not ended and "step 4: the gradient is not finite on worker-1 (rank 1" in said, said
        return
    left = 4 - (len(VICTIMS[cell.fault]) if cell.outcome == "on" else 0)
    assert len(ended) == left, said
    digests = {}
    for text in ends:
        for step, digest in re.findall(r"^step (\d+) digest (\w+)", text, re.MULTILINE):
            digests.setdefault(int(step), set()).add(digest)
    assert all(len(found) == 1 for found in digests.values()) and sorted(digests) == list(range(13)), digests
    kind = {"smaller": "out-of-memory", "skipped": "numbers"}.get(cell.outcome, "evicted|death")
    if cell.phase != "end":
        assert all(re.search(rf"^event \d+ ({kind}) ", text, re.MULTILINE) for text in ended), ended


class Jobs:
    """All cells of real processes, some at a time; each test waits for its own."""

    def __init__(self, wanted):
        self._torch = TorchJobs()
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self._futures = {cell.name: self._pool.submit(self._run, cell) for cell in wanted}

    def _run(self, cell):
        start = time.monotonic()
        result = run_native(cell) if cell.front == "native" else self._torch.run(cell)
        print(f"{cell.name}: {time.monotonic() - start:.1f} s", flush=True)
        return result

    def result(self, cell):
        return self._futures[cell.name].result()

    def close(self):
        self._pool.shutdown(cancel_futures=True)
        self._torch.close()


@pytest.fixture(scope="module")
def jobs(request):
    names = {item.callspec.params["name"] for item in request.session.items if "jobs" in item.fixturenames}
    jobs = Jobs([cell for name, cell in CELLS.items() if name in names])
    yield jobs
    jobs.close()


def names(*fronts):
    return [name for name, cell in CELLS.items() if cell.front.split(" ")[0] in fronts]


@pytest.mark.parametrize("name", names("PyTorch"))
def test_a_fault_in_pytorch(jobs, name):
    check_torch(CELLS[name], *jobs.result(CELLS[name]))


@pytest.mark.parametrize("name", names("native"))
def test_a_fault_in_the_native_engine(jobs, name):
    check_native(CELLS[name], *jobs.result(CELLS[name]))


@pytest.mark.parametrize("name", names("replica"))
def test_a_fault_in_the_step_protocol(name):
    protocol.tried(CELLS[name].phase, CELLS[name].fault)


@pytest.mark.parametrize("name", names("start"))
def test_a_fault_before_the_job(name):
    """Under the real launcher; the worker is lost before it has imported anything."""
    fault = CELLS[name].fault
    strike = {"kill": "os.kill(os.getpid(), signal.SIGKILL)", "exit": "os._exit(0)", "error": "raise KeyError('mine')"}
    script = ("import os, signal\nif os.environ['RANK'] == '1':\n    " + strike[fault] + "\n"
              "import torch, isochron.torch as isochron\n"
              "isochron.Job(global_batch=4, timeout=8.0)\n")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "script.py"
        path.write_text(script)
        command = [sys.executable, "-m", "isochron.launch", "-n", "2", str(path)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG)
    assert done.returncode != 0, done.stderr
    assert "rank 1" in done.stderr, done.stderr


def test_the_table_in_the_documents_is_that_of_the_cells():
    text = (ROOT / "docs/guarantees.md").read_text()
    assert cells.table() in text, "run tests/faults/cells.py and put its table into docs/guarantees.md"
    assert len(cells.CELLS) == len(CELLS) >= 240
