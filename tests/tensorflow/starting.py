"""How a worker finds out who and where it is."""

import difflib
import json
import os
import pathlib
import runpy
import subprocess
import sys
import threading

import parity
from running import make_job

from isochron.tensorflow import heartbeat
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


def meeting(folder):
    from launch import free_ports

    port = str(free_ports(1)[0] - 1)  # they meet at the one after it
    check_meeting([{"RANK": str(k), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                   for k in range(3)])  # fmt: skip
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": f"job-{port}"}
    check_meeting([{**mpi, "OMPI_COMM_WORLD_RANK": str(k)} for k in range(2)])
    slurm = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": port, "SLURM_STEP_ID": "1", "SLURM_STEP_NODELIST": "localhost"}
    check_meeting([{**slurm, "SLURM_PROCID": str(k)} for k in range(2)])
    alone = found([{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}], 0.1)[0]
    assert isinstance(alone, TimeoutError) and "ranks [1]" in str(alone), alone
    assert find_cluster({}, 1.0) == Cluster() and Cluster().size == 1
    config = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    assert find_cluster({"TF_CONFIG": json.dumps(config)}, 1.0) == Cluster(1, ("a:1", "b:2"))
    for wrong in ('{"task": 3}', "{", json.dumps({**config, "task": {"type": "ps", "index": 0}}),
                  json.dumps({**config, "task": {"type": "worker", "index": 2}})):  # fmt: skip
        error = found([{"TF_CONFIG": wrong}])[0]
        assert isinstance(error, ValueError) and "TF_CONFIG" in str(error), error


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


def heartbeat_is_ours(folder):
    """The strategy takes the service as the job has configured it, by what is not a public interface."""
    from tensorflow.python.eager import context

    job = make_job()
    milliseconds = context.context().coordination_service.heartbeat_timeout_in_ms
    assert milliseconds == 1000 * heartbeat.seconds(parity.TIMEOUT) == 30_000, milliseconds
    job.close()


def async_unclosed(folder):
    """Two workers whose program does not close the job end without a word of TensorFlow's about lost connections."""
    from launch import free_ports

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
    for case in (meeting, examples_before, examples_after, no_torch, reports, heartbeat_is_ours, async_unclosed)
}
