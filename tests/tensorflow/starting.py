"""How a worker finds out who and where it is."""

import difflib
import contextlib
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import threading
import time
import types

import numpy as np
import parity
from chances import make_chance, random_json, scribbled
from running import make_job

from isochron.tensorflow import coordination
from isochron.tensorflow.cluster import Cluster, find_cluster


def found(environments, timeout=20.0):
    """What several workers find, each in a thread."""
    clusters = [None] * len(environments)

    def find(rank):
        try:
            clusters[rank] = find_cluster(environments[rank], timeout)
        except Exception as error:
            clusters[rank] = error

    threads = [threading.Thread(target=find, args=[rank]) for rank in range(len(environments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clusters


def check_meeting(environments):
    clusters = found(environments)
    assert all(isinstance(cluster, Cluster) for cluster in clusters), clusters
    assert [cluster.index for cluster in clusters] == list(range(len(environments)))
    assert len({cluster.addresses for cluster in clusters}) == 1, clusters
    assert len(set(clusters[0].addresses)) == len(environments)


def rendezvous(folder):
    from ports import free_ports

    port = str(free_ports(1)[0] - 1)  # they meet at the one after it
    check_meeting([{"RANK": str(k), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                   for k in range(3)])  # fmt: skip
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": f"job-{port}"}
    check_meeting([{**mpi, "OMPI_COMM_WORLD_RANK": str(k)} for k in range(2)])
    slurm = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": port, "SLURM_STEP_ID": "1", "SLURM_STEP_NODELIST": "localhost"}
    check_meeting([{**slurm, "SLURM_PROCID": str(k)} for k in range(2)])
    alone = found([{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}], 0.1)[0]
    assert isinstance(alone, TimeoutError) and "ranks [1]" in str(alone), alone
    three = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for error in found([{**three, "RANK": rank} for rank in "01"], 1.0):  # also who has come learns who has not
        assert isinstance(error, TimeoutError) and error.ranks == (2,), error
    error = found([{**three, "RANK": "1"}], 0.1)[0]
    assert isinstance(error, TimeoutError) and error.ranks == (0,), error
    assert find_cluster({}, 1.0) == Cluster() and Cluster().size == 1
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    assert find_cluster({"TF_CONFIG": json.dumps(config)}, 1.0) == Cluster(1, ("a:1", "b:2"))
    for wrong in ('{"task": 3}', "{", json.dumps({**config, "task": {"type": "ps", "index": 0}}),
                  json.dumps({**config, "task": {"type": "worker", "index": 2}})):  # fmt: skip
        error = found([{"TF_CONFIG": wrong}])[0]
        assert isinstance(error, ValueError) and "TF_CONFIG" in str(error), error


def listeners(port):
    """Addresses on which this host listens at that port, as the kernel writes them."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == port]


def hostile_words():
    chance = make_chance()
    yield from (b'{"rank": 1, "address": "stranger:1"}\n', b"\xff\xfe\n", b"[" * 4000 + b"\n", b'{"rank":"\\ud800"}\n',
                b"news of a stranger\n", b"\n", b"", b"\xff\xff\xff\xff")  # fmt: skip
    for _ in range(30):
        yield chance.randbytes(chance.choice([1, 32, 36, 100, 4000]))


def most_kilobytes():
    """The most memory that this process has had since that was forgotten."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def knock_with_everything(port):
    """What a stranger may try: nonsense, too much of it, and silence. Returns the silent ones."""
    for said in hostile_words():
        with socket.create_connection(("127.0.0.1", port), 10) as stranger, contextlib.suppress(OSError):
            stranger.sendall(said)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # so that what importing TensorFlow took counts as nothing
    before = most_kilobytes()
    with socket.create_connection(("127.0.0.1", port), 10) as stranger, contextlib.suppress(OSError):
        for _ in range(200):
            stranger.sendall(b"x" * (1 << 20))
    kilobytes = most_kilobytes() - before
    assert kilobytes < 50_000, f"{kilobytes} kB were taken for 200 MB of a stranger"
    return [socket.create_connection(("127.0.0.1", port), 10) for _ in range(100)]


def say_strange_fields(port):
    """What a worker of another version may say, who knows the key."""
    from isochron import door, job_key

    key, chance = job_key.HostKey(f"rendezvous-{port}").find(), make_chance()
    for _ in range(100):
        hello = {"rank": random_json(chance), "address": "x:1", "more": random_json(chance)}
        hello = scribbled(chance, hello) if chance.random() < 0.5 else hello
        rank, address = (hello.get("rank"), hello.get("address")) if isinstance(hello, dict) else (None, None)
        if (rank, type(rank)) != (1, int) or not isinstance(address, str):
            with contextlib.suppress(OSError):
                door.introduce(socket.create_connection(("127.0.0.1", port), 10), key, hello, time.monotonic() + 10.0)


def rendezvous_strangers(folder):
    """Strangers at the rendezvous are neither heard nor do they end or delay it."""
    from ports import free_ports

    port = free_ports(1)[0]
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1)}
    clusters = []
    first = threading.Thread(target=lambda: clusters.extend(found([{**variables, "RANK": "0"}], 60.0)))
    first.start()
    while not listeners(port):
        time.sleep(0.01)
    assert listeners(port) == ["0100007F"], listeners(port)
    silent = knock_with_everything(port)
    say_strange_fields(port)
    clusters += found([{**variables, "RANK": "1"}], 9.0)  # less than a stranger may take for its hello
    first.join()
    assert all(isinstance(cluster, Cluster) for cluster in clusters), clusters
    assert len({cluster.addresses for cluster in clusters}) == 1, clusters
    assert all(address.startswith("127.0.0.1:") for address in clusters[0].addresses), clusters
    for stranger in silent:
        stranger.close()
    elsewhere = found([{**variables, "RANK": "1", "MASTER_ADDR": "first.example"}], 1.0)[0]
    assert isinstance(elsewhere, ValueError) and str(elsewhere).startswith("ISOCHRON_JOB_KEY is not set"), elsewhere


def pair_frames(folder):
    """TensorFlow's servers ask nobody who he is: a frame is passed on as it is, or ends that connection with a name."""
    from isochron.tensorflow import pair_links

    class Pair(pair_links._Pair):
        def _receive(self, size, number):
            return np.frombuffer(frames.pop(0).ljust(size, b"y")[:size], np.uint8)

        def _send(self, message, number):
            pass

    chance = make_chance()
    for _ in range(100):
        length = chance.choice([0, 1, 4092, 4093, 9000, 1 << 22, (1 << 22) + 1, 1 << 31, chance.randrange(1 << 32)])
        said, lost = chance.randbytes(5000), []
        frames = [length.to_bytes(4, "big") + said[:4092], *([said[4092:]] if length > 4092 else []), bytes(4)]
        link = types.SimpleNamespace(lose=lambda *what, lost=lost: lost.append(what), fail=None)
        ours, theirs = socket.socketpair()
        pair = Pair(link, theirs, 3, (1, 2), None, 5.0)
        passed_on = b""
        while len(passed_on) < length <= 1 << 22:
            passed_on += ours.recv(1 << 22)
        pair.receiving.join(30)
        assert lost == ([(3, f"a frame of {length} bytes; permitted: {1 << 22}")] if length > 1 << 22 else []), lost
        assert passed_on[:5000] == said[: len(passed_on)] and len(passed_on) == (length if length <= 1 << 22 else 0)
        ours.close()
        pair.sending.join(30)
        theirs.close()


def roll_call_strangers(folder):
    """Nor at the roll call, whose news from others ends a job's work."""
    from isochron import door
    from isochron.tensorflow import roll_call

    key = b"of this test alone"
    listener = door.listen("127.0.0.1")
    place = {0: listener.getsockname()[:2]}
    call = roll_call.RollCall(listener, key, 2)
    try:
        call.note(7)
        silent = knock_with_everything(place[0][1])
        assert roll_call.call(place, key, 9.0) == {0: 7}
        roll_call.tell(place, b"of another job", "a stranger says so", [1], 0.2)
        for words, ranks in (("who?", [5]), ("who?", "all"), (3, [1]), ("who?", None)):
            roll_call._ask(*place[0], key, {"message": words, "ranks": ranks}, 0.2)
        assert call.heard() is None, call.heard()
        roll_call.tell(place, key, "task 1 is lost", [1], 9.0)
        roll_call.tell(place, key, "later news", [0], 9.0)
        assert call.heard() == ("task 1 is lost", [1]), call.heard()
        for stranger in silent:
            stranger.close()
    finally:
        call.close()


EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tensorflow"


def run_example(name, samples):
    sys.path.insert(0, str(EXAMPLES))
    sys.argv = [name, str(samples)]
    return runpy.run_path(str(EXAMPLES / name))


def examples_before(folder):
    for name in ("keras", "loop"):
        run_example(f"{name}_before.py", 512)


def examples_after(folder):
    """They run, and differ from what they were in at most six lines."""
    for name in ("keras", "loop"):
        run_example(f"{name}_after.py", 512)["job"].close()
        before, after = ((EXAMPLES / f"{name}_{when}.py").read_text().splitlines() for when in ("before", "after"))
        new = [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and line[2:].strip()]
        assert 0 < len(new) <= 6, new


def no_torch(folder):
    """Nothing of it was imported, and it is not there."""
    assert "torch" not in sys.modules


def reports(folder):
    """The program reads the logs that the worlds before this one wrote."""
    import isochron

    for name in ("slow", "memory", "fit"):
        log = folder.parent / "two" / f"{name}.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert lines[0]["program"] == "tensorflow", lines[0]
        assert all(line["loss"] > 0 for line in lines if line["type"] == "step"), lines
        program = os.environ.get("ISOCHRON_PROGRAM")
        if program:
            page = folder / f"{name}.html"
            subprocess.run([program, "report", log, "-o", page], check=True, capture_output=True)
            assert page.stat().st_size > 10000
    events = isochron.read_run(folder.parent / "two" / "memory.jsonl").event_records
    assert {event["event"] for event in events} == {"out-of-memory"}, events
    evaluations = isochron.read_run(folder.parent / "two" / "fit.jsonl").evaluation_records
    assert len(evaluations) == 2 and 0 < evaluations[-1]["accuracy"] <= 1, evaluations


def time_outs_are_ours(folder):
    """The strategy takes the service as the job has configured it, by what is not a public interface."""
    from tensorflow.python.eager import context

    job = make_job()
    service = context.context().coordination_service
    assert service.heartbeat_timeout_in_ms == 1000 * coordination.heartbeat_seconds(parity.TIMEOUT) == 30_000, service
    assert service.cluster_register_timeout_in_ms == 1000 * parity.TIMEOUT, service
    assert service.cluster_register_with_barrier, service
    job.close()


def async_unclosed(folder):
    """Two workers whose program does not close the job end without a word of TensorFlow's about lost connections."""
    from ports import free_ports

    program = folder / "unclosed.py"
    example = (EXAMPLES / "loop_after.py").read_text()
    assert "Job(global_batch=256)" in example
    program.write_text(example.replace("Job(global_batch=256)", "Job(global_batch=256, sync='asp')"))
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    workers = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        environment = {**os.environ, "TF_CONFIG": config, "PYTHONPATH": os.pathsep.join([*sys.path, str(EXAMPLES)])}
        command = [sys.executable, str(program), "512"]
        workers.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for worker in workers:
        errors = worker.communicate(timeout=parity.TIMEOUT)[1]
        assert worker.returncode == 0 and "StartAbort" not in errors and "Traceback" not in errors, errors


CASES = {
    case.__name__: case
    for case in (rendezvous, rendezvous_strangers, pair_frames, roll_call_strangers, examples_before, examples_after,
                 no_torch, reports, time_outs_are_ours, async_unclosed)  # fmt: skip
}
