"""Launchers, with a worker that is killed with SIGKILL in the middle of the run."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from isochron import launch
from ranks import ENVIRONMENT

SCRIPT = pathlib.Path(__file__).with_name("launched.py")


def run(folder, *launcher):
    command = [sys.executable, "-m", *launcher, str(SCRIPT), str(folder)]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    _, workers, _, far = result.stdout.split()
    return int(workers), float(far), result.stderr


def events(folder):
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return [line["event"] for line in lines if line["type"] == "event"], lines


def check_accounting(folder):
    """The program proves from the run log that every sample was used once."""
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    subprocess.run([program, "ledger", folder / "run.jsonl"], check=True, capture_output=True)


def test_under_torchrun_the_job_starts_again_from_what_it_saved(tmp_path):
    workers, far, _ = run(tmp_path, "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
                          "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")  # fmt: skip
    assert workers == 2
    assert far < 1e-9  # where one process ends that was never interrupted
    names, _ = events(tmp_path)
    assert names == ["resume"]
    check_accounting(tmp_path)


def test_under_our_launcher_the_survivor_goes_on(tmp_path):
    workers, far, told = run(tmp_path, "isochron.launch", "-n", "2")
    assert workers == 1
    assert far < 1e-9
    assert "isochron: rank 1 on " in told and "ended by SIGKILL" in told
    names, _ = events(tmp_path)
    assert names == ["death"]
    check_accounting(tmp_path)


# What the launcher itself owes: a worker here is any program.

KEY = {"ISOCHRON_JOB_KEY": "the secret of these tests"}
# The launcher of those who have no torch, of which this hides the one that is here.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from isochron import launch; sys.exit(launch.main())"


@contextlib.contextmanager
def launched(folder, script, *options, torch=True, **variables):
    """A launcher whose workers run `script`; it is gone at the end, and with it its workers."""
    path = folder / "script.py"
    path.write_text("import os, signal, sys, time, pathlib\nrank = int(os.environ['RANK'])\n" + script)
    launcher = ["-m", "isochron.launch"] if torch else ["-c", WITHOUT_TORCH]
    command = [sys.executable, *launcher, *options, path, folder]
    process = subprocess.Popen(command, env={**ENVIRONMENT, **variables}, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a worker that is left behind holds the pipe
            process.communicate(timeout=10)


def wait_for(condition, seconds=300.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def pids_in(folder, count):
    """The process numbers of workers, which have written theirs."""
    wait_for(lambda: len(list(folder.glob("*.pid"))) == count)
    return [int(file.stem) for file in folder.glob("*.pid")]


def is_there(process):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


WRITE_PID = "pathlib.Path(sys.argv[1], f'{os.getpid()}.pid').touch()\n"


def test_who_is_left_decides_how_the_job_ended(tmp_path):
    for order, expected in (([0, 3, 3], 3), ([3, 0, 0], 0), ([0, 0, 5], 5), ([0, 5, 0], 0), ([4, 5, 6], 4)):
        script = f"time.sleep(2.0 * rank)\nsys.exit({order}[rank])\n"
        with launched(tmp_path, script, "-n", "3") as launcher:
            assert launcher.wait(180) == expected, order


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_workers_end_with_their_launcher(tmp_path, number):
    with launched(tmp_path, WRITE_PID + "time.sleep(600)\n", "-n", "2") as launcher:
        workers = pids_in(tmp_path, 2)
        launcher.send_signal(number)
        launcher.wait(300)
        try:
            wait_for(lambda: not any(map(is_there, workers)), 60.0)
        finally:
            for worker in filter(is_there, workers):
                os.kill(worker, signal.SIGKILL)


def test_a_stopped_worker_is_not_waited_for_when_nobody_else_is_left(tmp_path):
    script = "if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\nsys.exit(3)\n"
    with launched(tmp_path, script, "-n", "3") as launcher:
        _, told = launcher.communicate(timeout=300)
        assert launcher.returncode == 3
        assert "rank 1" in told and "is stopped and nobody else is left" in told


def test_workers_that_are_all_stopped_are_killed_in_time(tmp_path):
    script = "os.kill(os.getpid(), signal.SIGSTOP)\n"
    with launched(tmp_path, script, "--stop-timeout", "1", "-n", "2") as launcher:
        _, told = launcher.communicate(timeout=300)
        assert launcher.returncode == 128 + signal.SIGKILL
        assert "rank 0" in told and "rank 1" in told and "has been stopped, and nobody else runs, for 1 s" in told


def test_workers_that_do_not_end_when_asked_to_are_killed_in_time(tmp_path):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WRITE_PID + "time.sleep(600)\n"
    with launched(tmp_path, script, "--stop-timeout", "1", "-n", "2") as launcher:
        pids_in(tmp_path, 2)
        launcher.send_signal(signal.SIGTERM)
        _, told = launcher.communicate(timeout=300)
        assert launcher.returncode == 128 + signal.SIGKILL
        assert "did not end within 1 s after it was asked to" in told


def test_a_stopped_worker_of_an_asynchronous_job_ends_the_job_and_the_launcher(tmp_path):
    script = """
import torch, isochron.torch as isochron
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(4000, 4), torch.randn(4000, 1))
with isochron.Job(global_batch=8, sync="asp", timeout=25.0, elastic=False) as job:
    model, optimizer = job.prepare(model, optimizer)
    for step, (x, y) in enumerate(job.loader(data)):
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        job.backward((model(x) - y).square().mean())
        optimizer.step()
"""
    with launched(tmp_path, script, "-n", "2") as launcher:
        _, told = launcher.communicate(timeout=300)
        assert launcher.returncode == 1, told
        assert "isochron.errors.TimeoutError" in told and "rank 1 on " in told


@pytest.mark.parametrize(("victim", "how"), [(0, "SIGKILL"), (1, "SIGSTOP")])
def test_survivors_of_an_asynchronous_job_go_on(tmp_path, capfd, victim, how):
    """Also of the first one, which has the coordinator and a share of the parameters, and writes the log."""
    timeout = 60.0 if how == "SIGKILL" else 8.0  # also for those who are slow to start
    script = f"""
import torch, isochron.torch as isochron
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(1000, 4), torch.randn(1000, 1))
with isochron.Job(global_batch=12, sync="asp", timeout={timeout}, log={str(tmp_path / "run.jsonl")!r}) as job:
    model, optimizer = job.prepare(model, optimizer)
    for epoch in job.epochs(2):
        for step, (x, y) in enumerate(job.loader(data)):
            if (rank, epoch, step) == ({victim}, 0, 3):
                job._trace.update = lambda record: None  # what it hears of now it does not come to write
            if (rank, epoch, step) == ({victim}, 0, 5):
                os.kill(os.getpid(), signal.{how})
            job.backward((model(x) - y).square().mean())
            optimizer.step()
        assert job.ledger.complete
    print("size %d\\n" % job.size, end="", flush=True)  # at once, since another one prints, too
"""
    with launched(tmp_path, script, "-n", "3") as launcher:
        _, told = launcher.communicate(timeout=300)
        assert launcher.returncode == 0, told
    assert capfd.readouterr().out.split() == ["size", "2"] * 2
    names, _ = events(tmp_path)
    # The first one who gives up a stopped worker kills it, and for whoever looks later it is dead.
    assert "death" in names or (how == "SIGSTOP" and "evicted" in names), names
    check_accounting(tmp_path)


def inodes_of(process):
    for file in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            link = os.readlink(file)
            if link.startswith("socket:["):
                yield link[8:-1]


def listening_addresses(processes):
    """As the kernel writes them."""
    inodes = {inode for process in processes for inode in inodes_of(process)}
    rows = [line.split() for table in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{table}").open()]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


JOINS = """
import torch, isochron.torch as isochron
job = isochron.Job(global_batch=8)
pathlib.Path(sys.argv[1], f"{os.getpid()}.pid").write_text(os.environ["MASTER_PORT"])
while not pathlib.Path(sys.argv[1], "go").exists():
    time.sleep(0.02)
job.barrier()
job.close()
"""


def test_on_one_host_nothing_listens_but_on_loopback(tmp_path):
    with launched(tmp_path, JOINS, "-n", "2") as launcher:
        workers = pids_in(tmp_path, 2)
        wait_for(lambda: all(file.read_text() for file in tmp_path.glob("*.pid")))
        addresses = listening_addresses([launcher.pid, *workers])
        program = os.environ.get("ISOCHRON_PROGRAM")
        command = [program, "doctor", "--job", str(launcher.pid)]
        doctor = subprocess.run(command, capture_output=True, text=True) if program else None
        (tmp_path / "go").touch()
        assert launcher.wait(300) == 0
    assert addresses == {"0100007F"}
    if doctor is not None:
        assert doctor.returncode == 0 and "warn" not in doctor.stdout, doctor.stdout + doctor.stderr
        assert "127.0.0.1:" in doctor.stdout, doctor.stdout


def test_a_strangers_words_in_the_store_evict_nobody(tmp_path):
    """The store is torch's and takes words from everybody: from a stranger, those that the launcher heeded once, and
    then the stranger's own in the place of all that the job has written."""
    import torch.distributed as dist

    with launched(tmp_path, JOINS, "-n", "2") as launcher:
        workers = pids_in(tmp_path, 2)
        wait_for(lambda: all(file.read_text() for file in tmp_path.glob("*.pid")))
        port = int((tmp_path / f"{workers[0]}.pid").read_text())
        store = dist.TCPStore("127.0.0.1", port, wait_for_workers=False)
        from isochron.torch.sealed import SealedStore

        forged = SealedStore(store, b"another key than the job's", 60.0)
        for rank in (0, 1):
            for name in (f"evicted/{rank}", f"dead/{rank}"):
                store.set(f"isochron/{name}", json.dumps({"rank": 0}))
                forged.set(name, "{}")
        if hasattr(store, "list_keys"):
            for name in store.list_keys():
                if name.startswith("isochron/") and "attempt" not in name:
                    store.set(name, b"\xff" * 100)
        time.sleep(3 * launch.LOOK_SECONDS)
        assert launcher.poll() is None and all(map(is_there, workers))
        (tmp_path / "go").touch()
        assert launcher.wait(300) == 0


def test_the_launcher_carries_the_key_where_others_cannot_read_it(tmp_path):
    script = WRITE_PID + "time.sleep(600)\n"
    with launched(tmp_path, script, "-n", "1", **KEY) as launcher:
        (worker,) = pids_in(tmp_path, 1)
        for process in (launcher.pid, worker):
            words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
            assert KEY["ISOCHRON_JOB_KEY"].encode() not in words and b"script.py" in words
        assert KEY["ISOCHRON_JOB_KEY"].encode() in pathlib.Path(f"/proc/{worker}/environ").read_bytes()


def two_hosts(folder, scripts, torch):
    """Two launchers that take each other for another host."""
    stack = contextlib.ExitStack()
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    launchers = []
    for node, script in enumerate(scripts):
        (folder / str(node)).mkdir()
        options = ["-n", "1,1", "--node", str(node), "--master", f"127.0.0.1:{port}"]
        launchers.append(stack.enter_context(launched(folder / str(node), script, *options, torch=torch, **KEY)))
    return stack, launchers


with_and_without_torch = pytest.mark.parametrize("torch", [True, False], ids=["torch", "no_torch"])


@with_and_without_torch
def test_the_store_stays_until_the_other_hosts_are_done(tmp_path, torch):
    stack, (first, second) = two_hosts(tmp_path, ["", WRITE_PID + "time.sleep(4)\n"], torch)
    with stack:
        pids_in(tmp_path / "1", 1)
        assert second.wait(300) == 0, second.stderr.read()
        assert second.stderr.read() == ""
        assert first.wait(300) == 0


@with_and_without_torch
def test_a_host_whose_store_is_lost_lets_its_workers_finish(tmp_path, torch):
    wait = "while not pathlib.Path(sys.argv[1], 'go').exists(): time.sleep(0.02)\n"
    stack, (first, second) = two_hosts(tmp_path, ["time.sleep(600)\n", WRITE_PID + wait], torch)
    with stack:
        pids_in(tmp_path / "1", 1)
        first.kill()
        first.wait(300)
        time.sleep(3 * launch.LOOK_SECONDS)
        (tmp_path / "1" / "go").touch()
        _, told = second.communicate(timeout=300)
        assert second.returncode == 0
        assert "the store on the first host is lost" in told and "Traceback" not in told


def test_bad_usage_is_told_before_anything_is_started(capsys, monkeypatch):
    monkeypatch.delenv("ISOCHRON_JOB_KEY", raising=False)
    for words, complaint in (
        (["-n", "0", "x.py"], "-n/--workers: '0'; permitted: numbers above 0"),
        (["-n", "2,3", "--node", "2", "--master", "a:1", "x.py"], "--node is 2; permitted: 0 to 1"),
        (["-n", "2,3", "x.py"], "--master is not given; permitted with several hosts: HOST:PORT of the first"),
        (["-n", "2,3", "--master", "a:1", "x.py"], "--key-file is not given; permitted with several hosts: a file"),
        (["--key-file", "/nowhere", "x.py"], "--key-file is '/nowhere'; permitted: a file that can be read"),
        (["--wokers", "2", "x.py"], "unknown option '--wokers'; did you mean --workers?"),
        (["--no-probe", "x.py"], "--no-probe is given without --watch; permitted: with it"),
    ):
        with pytest.raises(SystemExit) as ended:
            launch.main(words)
        assert ended.value.code == 2
        assert complaint in capsys.readouterr().err


def test_a_watch_is_told_its_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--watch-log", "seen.jsonl", "--watch-steps", "50", "--no-probe"]
    options = launch.parse(["-n", "2", "--watch", *words, "x.py", "--watch-steps", "3"])
    assert launch.watch.given_options(options) == words and options.arguments == ["--watch-steps", "3"]
    assert launch.watch.given_options(launch.parse(["--watch", "x.py"])) == []


def test_places_come_from_the_launchers_variables(alone):
    places = alone.run("places")[0]
    assert places["nothing"] is None
    assert places["torchrun"] == (3, 4, 1, "torchrun", "first", 29400, False)
    assert places["slurm"][:5] == (5, 8, 1, "slurm", "gpu03")
    assert places["two groups"][4] == "a10"  # the first group has no part in this step
    assert places["open mpi"][:5] == (1, 2, 1, "open mpi", "127.0.0.1") and places["open mpi"][6]
    assert places["bad"] == "RANK is 'x'; permitted: a whole number, 0 or more"
