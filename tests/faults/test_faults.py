"""Tries every cell of the fault matrix (cells.py) and compares the table of docs/guarantees.md with it.

Jobs of real processes run several at a time, since they mostly wait; every cell is a test of its own that waits for its
job. The variable ISOCHRON_BIN says where the programs are, MPIRUN what starts workers, TENSORFLOW_PYTHON which Python
has TensorFlow.
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "tests/faults")]

import cells  # noqa: E402
import native_jobs  # noqa: E402
import protocol  # noqa: E402
from ranks import ENVIRONMENT, Nursery, Ranks  # noqa: E402

AT_ONCE = 4  # jobs
LONG = native_jobs.LONG
SAME = 1.2e-7  # how far a model may be from that of an undisturbed run
CELLS = {cell.name: cell for cell in cells.CELLS}


class TorchJobs:
    """Jobs of forked ranks; their store is here, as it is the launcher's otherwise."""

    def __init__(self):
        self._nursery = None
        self._lock = threading.Lock()
        self._once = threading.Lock()

    def run(self, cell):
        """What became of every rank: its answer, or None if it died; which rank was to be struck, and whether it was;
        the parameters after every step of the same job without a fault. The seconds from the fault to the survivors'
        end."""
        victim = 0 if cell.fault == "kill-first" or cell.fault == "disk" else 1
        size = 4 if cell.phase == "join" else 3
        arguments = {"sync": cell.sync, "phase": cell.phase, "fault": cell.fault.split("-")[0], "victim": victim,
                     "timeout": cell.timeout}  # fmt: skip
        if cell.front.endswith("without recovery"):
            arguments["elastic"] = False
        if cell.phase == "join":
            arguments["first_lost"] = size - 1
        if cell.fault == "nan-skip":
            arguments["numbers"] = "skip"
        answers, seconds, struck = self._ranks(size, arguments, victim if cell.fault == "stop" else None)
        with self._once:
            course = self._undisturbed(3 if cell.outcome == "skipped" else None) if cell.sync == "bsp" else None
        return (answers, victim, struck, course), seconds

    @functools.cache  # noqa: B019
    def _undisturbed(self, left_out):
        arguments = {"sync": "bsp", "phase": "undisturbed", "fault": None, "victim": None, "timeout": 120.0}
        return self._ranks(3, {**arguments, "left_out": left_out}, None)[0][0]["course"]

    def _ranks(self, size, arguments, stopped):
        import torch.distributed as dist

        store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        with self._lock:
            self._nursery = self._nursery or Nursery()
            ranks = Ranks(self._nursery, size, store.port)
        with tempfile.TemporaryDirectory() as folder:
            struck, began = pathlib.Path(folder) / "struck", time.monotonic()
            ranks.start("torch_worker:tried", folder=folder, **arguments)
            answers = [self._answer(ranks, rank, rank == stopped) for rank in range(size)]
            is_struck = struck.exists()
            began = float(struck.read_text()) if is_struck else began
        ranks.close()
        ended = max((answer.get("moment", began + LONG) for answer in answers if answer), default=began)
        return answers, ended - began, is_struck

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


def check_left(survivors, victim):
    assert survivors and all(answer["end"] in ("on", "named") for answer in survivors), survivors
    named = [answer for answer in survivors if answer["end"] == "named"]
    assert all(victim in answer["ranks"] for answer in named), survivors


def check_struck(cell, answers, victim, struck):
    """A fault that takes a worker has taken it: it came to that place, where it left a mark, and no further. Without
    the mark one that is slow, or that nobody waits for since it is to be stopped, would look the same."""
    if cell.fault in cells.LOSSES:
        assert struck, f"rank {victim} never came to the phase '{cell.phase}': {answers}"
        assert answers[victim] is None, answers


def check_torch(cell, answers, victim, struck, course):
    check_struck(cell, answers, victim, struck)
    survivors = [answer for answer in answers if answer is not None]
    if cell.outcome == "left":
        return check_left(survivors, victim)
    expected = {"on": "on", "smaller": "on", "skipped": "on", "done": "on", "named": "named", "all": "numbers",
                "told": "error"}[cell.outcome]  # fmt: skip
    assert survivors and all(answer["end"] == expected for answer in survivors), answers
    if expected == "on":
        check_models(cell, survivors, course)
    elif expected == "error":
        assert all("No space left on device" in answer["words"] for answer in survivors), answers
    elif expected == "named":
        assert all(victim in answer["ranks"] for answer in survivors), answers
    else:
        assert len(survivors) == 3 and all(f"-{victim} (rank {victim}" in answer["words"] for answer in survivors)


def check_models(cell, survivors, course):
    """All have the same one, which is that of an undisturbed run; who was lost is told."""
    assert len({str(answer["values"]) for answer in survivors}) == 1
    assert len({answer["step"] for answer in survivors}) == 1 or cell.sync != "bsp"
    assert all(answer["complete"] != (cell.phase == "leave") for answer in survivors)
    whole = cell.outcome != "on" or cell.phase == "end"
    assert all(answer["size"] == (3 if whole else 2) for answer in survivors), survivors
    if cell.outcome != "done" and cell.phase != "end":
        lost = "evicted" if cell.fault == "stop" else "death"
        kind = {"smaller": "out-of-memory", "skipped": "numbers"}.get(cell.outcome, lost)
        assert all(kind in answer["events"] for answer in survivors), survivors
    assert len(survivors) == (3 if cell.outcome in ("smaller", "skipped") else 2)
    if cell.phase == "checkpoint":
        assert survivors[0]["files"] == ["job.pt"], "the checkpoint is not there, or something beside it"
    if course is not None:
        same = course[survivors[0]["step"] - 1]
        apart = max(abs(a - b) for a, b in zip(survivors[0]["values"], same, strict=True))
        assert apart <= SAME, f"parameters are {apart} away from those of an undisturbed run"


STRIKES = {"kill": "os.kill(os.getpid(), signal.SIGKILL)", "stop": "os.kill(os.getpid(), signal.SIGSTOP)",
           "exit": "os._exit(0)", "error": "raise KeyError('mine')"}  # fmt: skip


def run_start(cell):
    """The status of a launcher and what was said; the seconds from the fault to its end."""
    with tempfile.TemporaryDirectory() as folder:
        path, struck = pathlib.Path(folder) / "script.py", pathlib.Path(folder) / "struck"
        path.write_text("import os, pathlib, signal\n"
                        f"if os.environ['RANK'] == '{0 if cell.fault == 'kill-first' else 1}':\n"
                        f"    pathlib.Path({str(struck)!r}).touch()\n"
                        f"    {STRIKES[cell.fault.removesuffix('-first')]}\n"
                        "import torch, isochron.torch as isochron\n"
                        f"isochron.Job(global_batch=4, timeout={cell.timeout})\n")  # fmt: skip
        command = [sys.executable, "-m", "isochron.launch", "-n", "3", str(path)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG)
        return (done.returncode, done.stderr), time.time() - struck.stat().st_mtime


class TensorFlowJobs:
    """All of them by one process, which has imported TensorFlow; what became of a cell is waited for."""

    undisturbed = f"bsp:step:none:{cells.PATIENCE}"

    @staticmethod
    def words_of(cell):
        return f"{cell.sync}:{cell.phase}:{cell.fault}:{cell.timeout}"

    def __init__(self, wanted):
        self._results = {}
        self._news = threading.Condition()
        python = os.environ.get("TENSORFLOW_PYTHON", "")
        words = list(map(self.words_of, wanted))
        words += [self.undisturbed] if words else []
        self._process = None
        if words and pathlib.Path(python).exists():
            command = [python, ROOT / "tests/faults/tensorflow_worker.py", *words]
            environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
            self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self._process.stdout:
            result = json.loads(line)
            with self._news:
                self._results[result["cell"]] = result
                self._news.notify_all()
        with self._news:
            self._results["status"] = self._process.wait()
            self._news.notify_all()

    def result(self, words):
        if self._process is None:
            pytest.skip("TENSORFLOW_PYTHON is not set to a Python with TensorFlow")
        with self._news:
            self._news.wait_for(lambda: words in self._results or "status" in self._results)
            if self._results.get("status") == 77:
                pytest.skip("TensorFlow is not installed")
            return self._results[words]

    def close(self):
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def check_tensorflow(cell, answers, victim, struck, undisturbed):
    check_struck(cell, answers, victim, struck)
    survivors = [answer for rank, answer in enumerate(answers) if rank != victim or cell.fault not in cells.LOSSES]
    if cell.outcome == "left":
        return check_left(survivors, victim)
    expected = {"named": "named", "done": "on", "all": "numbers", "told": "error"}[cell.outcome]
    assert all(answer is not None and answer["end"] == expected for answer in survivors), answers
    if expected == "named":
        assert all(victim in answer["ranks"] for answer in survivors), answers
        return
    if expected == "numbers":
        assert struck and all(f"-{victim} (rank {victim}" in answer["words"] for answer in survivors), answers
        return
    if expected == "error":
        assert struck and all("No space left on device" in answer["words"] for answer in survivors), answers
        return
    assert all(answer["complete"] for answer in survivors), answers
    assert len({str(answer["values"]) for answer in survivors}) == 1
    if cell.sync == "bsp":
        apart = max(abs(a - b) for a, b in zip(survivors[0]["values"], undisturbed[0]["values"], strict=True))
        assert apart <= native_jobs.PARAMETERS, f"parameters are {apart} away from those of an undisturbed run"


def check_time(cell, seconds):
    assert seconds < cell.most_seconds, f"the survivors took {seconds:.0f} s, with a time-out of {cell.timeout:g} s"


class Jobs:
    """All cells of real processes, some at a time; each test waits for its own."""

    def __init__(self, wanted):
        self._torch = TorchJobs()
        self.tensorflow = TensorFlowJobs([cell for cell in wanted if cell.front == "TensorFlow"])
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self._futures = {cell.name: self._pool.submit(self._run, cell) for cell in wanted
                         if cell.front != "TensorFlow"}  # fmt: skip

    def _run(self, cell):
        native = {"native": native_jobs.run_workers_of, "own": native_jobs.run_workers_of,
                  "launch": native_jobs.run_launch, "start": run_start}  # fmt: skip
        run = native.get(cell.front, self._torch.run)
        result, seconds = run(cell)
        print(f"{cell.name}: {seconds:.1f} s", flush=True)
        return result, seconds

    def result(self, cell):
        result, seconds = self._futures[cell.name].result()
        check_time(cell, seconds)
        return result

    def close(self):
        self._pool.shutdown(cancel_futures=True)
        self._torch.close()
        self.tensorflow.close()


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


@pytest.mark.parametrize("name", names("native", "own"))
def test_a_fault_in_the_native_engine(jobs, name):
    native_jobs.check_workers(CELLS[name], *jobs.result(CELLS[name]))


@pytest.mark.parametrize("name", names("launch"))
def test_a_fault_under_the_native_launcher(jobs, name):
    native_jobs.check_launch(CELLS[name], *jobs.result(CELLS[name]))


@pytest.mark.parametrize("name", names("TensorFlow"))
def test_a_fault_in_tensorflow(jobs, name):
    cell = CELLS[name]
    result = jobs.tensorflow.result(jobs.tensorflow.words_of(cell))
    undisturbed = jobs.tensorflow.result(jobs.tensorflow.undisturbed)
    check_time(cell, result["seconds"])
    check_tensorflow(cell, result["answers"], result["victim"], result["struck"], undisturbed["answers"])


@pytest.mark.parametrize("name", names("replica"))
def test_a_fault_in_the_step_protocol(name):
    protocol.tried(CELLS[name].phase, CELLS[name].fault)


@pytest.mark.parametrize("name", names("start"))
def test_a_fault_before_the_job(jobs, name):
    """Under the real launcher; the worker is lost before it has imported anything."""
    status, said = jobs.result(CELLS[name])
    victim = 0 if CELLS[name].fault == "kill-first" else 1
    assert status != 0, said
    assert said.count(f"PeerLostError: making the job of 3 workers: rank {victim} did not come") == 2, said


def test_the_table_in_the_documents_is_that_of_the_cells():
    text = (ROOT / "docs/guarantees.md").read_text()
    assert cells.table() in text, "run tests/faults/cells.py and put its table into docs/guarantees.md"
    assert len(cells.CELLS) == len(CELLS) >= 300
    for front, test in cells.TESTS.items():
        (mark,) = globals()[test].pytestmark
        assert set(mark.args[1]) >= {cell.name for cell in cells.CELLS if cell.front == front}, front
