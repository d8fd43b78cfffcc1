"""Cells of native jobs: workers under mpirun that strike themselves, and jobs of the program under its launcher."""

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

import cells

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = 300.0  # seconds: a job that takes so long hangs, however busy the machine is
# Against an undisturbed run, in single precision after a dozen steps or more: shares of a step are added in another
# order when others compute them.
PARAMETERS, SUM_OF_PARAMETERS, LOSS = 1e-5, 1e-5, 1e-3
PLACES = {  # phase: what strikes worker %d
    "bsp": {"step": "5:%d:forward", "reduction": "5:%d:reduce:300", "optimizer": "5:%d:before-optimizer",
            "checkpoint": "6:%d:save:0", "evaluation": "6:%d:evaluate", "leave": "12:%d:forward",
            "end": "12:%d:after-optimizer"},
    "async": {"step": "%d:4:forward", "reduction": "%d:4:push:0", "optimizer": "%d:4:free:0",
              "checkpoint": "%d:1:save", "evaluation": "%d:1:barrier", "leave": "%d:0:forward", "end": "%d:3:end"},
}  # fmt: skip
STOPPED_SECONDS = "30"
IN_STEP = {"bsp", "local"}  # in rounds of one plain step, so that it does not matter who takes it
WORDS = {"bsp": ("steps=12", "evaluate=2", "save=3"),
         # A worker of a round without samples would never come to its forward pass.
         "local": ("steps=12", "evaluate=2", "save=3", "round=1", "model=plain", "momentum=0", "policy=uniform"),
         "asp": ("sync=asp",), "ssp": ("sync=ssp", "staleness=2"),
         "ssp 0": ("sync=ssp", "staleness=0", "servers=1")}  # fmt: skip
VICTIMS = {"kill": (2,), "kill-first": (0,), "kill-two": (0, 2), "stop": (2,), "exit": (2,), "error": (2,)}
_once = threading.Lock()


def run_workers(sync, words, launched=None):
    """What the workers who reached the end wrote down, their parameters, what was said, whether a worker was struck,
    and the seconds that it took, since the last fault if one was. `launched`: options of `isochron launch`, if that
    starts them."""
    binary = pathlib.Path(os.environ["ISOCHRON_BIN"]) / ("elastic_worker" if sync in IN_STEP else "async_worker")
    with tempfile.TemporaryDirectory() as folder:
        start = [ROOT / "tests/ranks/mpirun.sh", os.environ["MPIRUN"], "4"]
        if launched is not None:
            start = [binary.parent / "isochron", "launch", "-n", "4", *launched, "--"]
        command = [*start, binary, folder, *WORDS[sync], *words]
        if sync in IN_STEP and launched is None:
            command[:0] = [ROOT / "tests/elastic/outlived.sh", binary, folder]
        began = time.time()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)  # fmt: skip
        try:
            said, _ = process.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return [], [], "it hangs: " + process.communicate()[0], False, LONG
        files = list(pathlib.Path(folder).iterdir())
        ends = [path.read_text() for path in files if path.suffix in (".log", ".end")]
        ended = [path.stat().st_mtime for path in files if path.suffix in (".log", ".end")]
        struck = pathlib.Path(folder) / "struck"
        is_struck = struck.exists()
        seconds = max(ended, default=time.time()) - (struck.stat().st_mtime if is_struck else began)
        models = [list(map(float, path.read_text().split())) for path in files if path.suffix == ".parameters"]
    return ends, models, said, is_struck, seconds


@functools.cache
def _undisturbed(sync, words):
    return run_workers(sync, words)


def undisturbed(sync, words=()):
    with _once:
        return _undisturbed(sync, words)


def run_workers_of(cell):
    base, faults = (), []
    if cell.fault == "memory":
        base, faults = ("policy=uniform",), ["4:1:memory"]
    elif cell.fault.startswith("nan"):
        what = "always-nan" if cell.phase == "step" else "nan-gradient"
        faults = ["model=plain", f"4:1:{what}", *(["numbers=skip"] if cell.fault == "nan-skip" else [])]
    else:
        places = PLACES["bsp" if cell.sync in IN_STEP else "async"]
        place = places[cell.phase]
        if cell.fault == "stop":
            faults.append("signal=19")
        if cell.sync not in IN_STEP:
            faults += {"checkpoint": ["save=1"], "leave": ["leave=0"]}.get(cell.phase, [])
        faults += [place % victim for victim in VICTIMS[cell.fault]]
        if cell.front == "own":
            faults.append(f"ending={cell.fault}")
    faults.append(f"timeout={round(1000 * cell.timeout)}")
    in_order = cell.sync in IN_STEP or (cell.sync == "ssp 0" and cell.phase != "leave")
    same = cell.outcome in ("on", "smaller") and in_order
    # Who is stopped when the others have done their part is the launcher's to end.
    options = ("--start-timeout", STOPPED_SECONDS) if (cell.phase, cell.fault) == ("end", "stop") else ()
    *tried, seconds = run_workers(cell.sync, (*base, *faults), options if cell.front == "own" else None)
    return (*tried, undisturbed(cell.sync, base) if same else None), seconds


def check_workers(cell, ends, models, said, struck, reference):
    assert struck or cell.fault not in VICTIMS, f"nobody came to the phase '{cell.phase}': {said}"
    if cell.sync not in IN_STEP:
        left = 4 - len(VICTIMS[cell.fault])
        assert len(ends) == left, said
        for end in ends:  # by then nobody has to know of who was lost at the end
            assert f"ranks {left} " in end or cell.phase == "end", end
            whole = "complete 1" in end and end.split("used ")[1].startswith("600 600 600")
            assert whole or cell.phase == "leave", end
        sums = [float(text.split("digest ")[1].split()[0]) for text in ends]
        assert len(set(sums)) == 1
        if reference is not None:
            assert abs(sums[0] - float(reference[0][0].split("digest ")[1].split()[0])) <= SUM_OF_PARAMETERS
        return
    ended = [text for text in ends if re.search(r"^end ", text, re.MULTILINE)]
    if cell.outcome == "all":
        assert not ended and re.search(r"step 4: the gradient is not finite on \S+-1 \(rank 1", said), said
        return
    left = 4 - (len(VICTIMS[cell.fault]) if cell.outcome == "on" else 0)
    # Whoever is stopped at the end goes on when mpirun ends it, and may come to its own end then.
    spared = 1 if (cell.phase, cell.fault) == ("end", "stop") else 0
    assert left <= len(ended) <= left + spared, said
    digests = {}
    for text in ends:
        for step, digest in re.findall(r"^step (\d+) digest (\w+)", text, re.MULTILINE):
            digests.setdefault(int(step), set()).add(digest)
    assert all(len(found) == 1 for found in digests.values()) and sorted(digests) == list(range(13)), digests
    if cell.outcome == "skipped":
        assert digests[4] == digests[3] != digests[5], "the model has moved in the step that is left out"
    kind = {"smaller": "out-of-memory", "skipped": "numbers"}.get(cell.outcome, "evicted|death")
    if cell.phase != "end":
        assert all(re.search(rf"^event \d+ ({kind}) ", text, re.MULTILINE) for text in ended), ended
    if reference is not None:
        apart = max(abs(a - b) for a, b in zip(models[0], reference[1][0], strict=True))
        assert apart <= PARAMETERS, f"parameters are {apart} away from those of an undisturbed run"


TRAIN = (
    "train --dataset synthetic --model cnn:width=8 --train-samples 2048 --test-samples 100 --global-batch 128 "
    "--learning-rate 0.02 --epochs 1000 --eval-every 0 --log run.jsonl --progress off --checkpoints saved"
).split()


class LaunchedJob:
    """`isochron launch` in a folder of its own, of which something is waited for."""

    def __init__(self, folder, at_once, *words):
        self.folder = pathlib.Path(folder)
        self.program = pathlib.Path(os.environ["ISOCHRON_BIN"]) / "isochron"
        start_timeout, timeout = (cells.PATIENCE, cells.PATIENCE) if at_once else (cells.TIMEOUTS["launch"], 8)
        command = [self.program, "launch", "-n", "3", "--replace", "9", "--restarts", "3",
                   "--start-timeout", str(start_timeout), "--", *TRAIN, "--timeout", str(timeout), *words]  # fmt: skip
        environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
        self.said = open(self.folder / "said", "w+")
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=self.said, stderr=self.said)
        self.struck = time.monotonic()
        self.deadline = self.struck + LONG

    def until(self, condition):
        while not (found := condition()):
            assert time.monotonic() < self.deadline and self.process.poll() is None, self.words()
            time.sleep(0.005)
        return found

    def pid(self, worker, other_than=None):
        """The number of a worker's process, once there is one."""

        def look():
            for file in self.folder.glob(f"isochron-*/{worker}.pids"):
                with contextlib.suppress(FileNotFoundError):  # a worker that is lost is forgotten before the next comes
                    words = file.read_text().split()
                    if words and int(words[0]) != other_than:
                        return int(words[0])
            return None

        return self.until(look)

    def log(self):
        path = self.folder / "run.jsonl"
        return path.read_text() if path.exists() else ""

    def strike(self, phase, fault):
        number = signal.SIGSTOP if fault == "stop" else signal.SIGKILL
        if phase == "join":
            self.until(lambda: self.log().count("\n") > 10)
            old = self.pid(1)
            os.kill(old, signal.SIGKILL)
            newcomer = self.pid(1, other_than=old)
            victims = {"kill": [newcomer], "stop": [newcomer], "kill-first": [self.pid(0)],
                       "kill-two": [self.pid(0), newcomer]}[fault]  # fmt: skip
        else:
            victims = [self.pid(worker) for worker in VICTIMS[fault]]
            if phase == "rendezvous":
                for pid in victims:
                    self.until(lambda pid=pid: any(self.folder.glob(f"isochron-*/{pid}.starting")))
        for pid in victims:
            os.kill(pid, number)
        self.struck = time.monotonic()

    def words(self):
        self.said.flush()
        return (self.folder / "said").read_text()[-3000:]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.said.close()


def run_launch(cell):
    """The launcher's status, what was said, whether the ledger is proven, the events, and the losses by step; and the
    seconds from the fault to the end of the job, or until it goes on with a worker that has joined."""
    with tempfile.TemporaryDirectory() as folder:
        joins = cell is not None and cell.phase == "join"
        job = LaunchedJob(folder, cell is None or cell.is_noticed_at_once, "--steps", "2000" if joins else "30")
        try:
            if cell is not None:
                job.strike(cell.phase, cell.fault)
            if joins:
                job.until(lambda: '"event":"join"' in job.log())
                lines = job.log().count("\n")
                job.until(lambda: job.log().count("\n") > lines + 10)
                moment = time.monotonic()
                job.process.terminate()
            status = job.process.wait(LONG)
            seconds = (moment if joins else time.monotonic()) - job.struck
            ledger = subprocess.run([job.program, "ledger", "run.jsonl"], cwd=folder, capture_output=True)
            records = [json.loads(line) for line in job.log().splitlines()]
            losses = {record["step"]: record["loss"] for record in records if record["type"] == "step"}
            events = [record["event"] for record in records if record["type"] == "event"]
            return (status, job.words(), ledger.returncode == 0, events, losses), seconds
        finally:
            job.close()


@functools.cache
def _undisturbed_launch():
    return run_launch(None)[0]


def check_launch(cell, status, said, proven, events, losses):
    with _once:
        reference = _undisturbed_launch()
    assert status == (143 if cell.phase == "join" else 0), said
    assert proven
    if cell.outcome == "again":
        assert "the job is started again" in said or "is started again from" in said, said
        assert sorted(losses) == list(range(30))
    else:
        assert "join" in events and "is started again" not in said, said
    for step, loss in reference[-1].items():
        assert abs(losses[step] - loss) <= LOSS, f"the loss of step {step} is another one"
