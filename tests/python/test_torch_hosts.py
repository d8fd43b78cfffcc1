"""Jobs on two hosts, as docs/hosts.md starts them by hand and by Ray."""

import importlib.util
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from two_hosts import ADDRESSES, SCRIPT, check

RAY_SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hosts" / "ray_train.py"


# All that listens on a worker's host, as the kernel writes addresses; the hosts have nothing else on them.
LISTENS = """
rows = [line.split() for table in ("tcp", "tcp6") for line in open(f"/proc/self/net/{table}")]
print("listens", os.uname().nodename, *{row[1].partition(":")[0] for row in rows if row[3] == "0A"}, flush=True)
job.sum([1.0])  # the other one has looked, too
job.close()"""


def run_on_both(hosts, folder, commands, script=SCRIPT):
    """The lines that both wrote; both must end well."""
    (folder / "train.py").write_text(script)
    options = {"cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [hosts.start(host, command, **options) for host, command in enumerate(commands)]
    outputs = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return "".join(output for output, _ in outputs).splitlines()


def test_our_launcher_on_each_of_two_hosts_trains_one_job(hosts, tmp_path):
    launcher = [sys.executable, "-m", "isochron.launch", "--workers", "1,1", "--master", "first:29400", "--node"]
    commands = [[*launcher, node, "train.py"] for node in "01"]
    lines = run_on_both(hosts, tmp_path, commands, SCRIPT.replace("\njob.close()", LISTENS))
    check(lines, ["first", "second"])
    listening = {words[1]: set(words[2:]) for line in lines if (words := line.split())[:1] == ["listens"]}
    for host, address in zip(("first", "second"), ADDRESSES, strict=True):
        own = socket.inet_aton(address)[::-1].hex().upper()
        assert own in listening[host] and listening[host] <= {own, "0100007F"}, (host, listening)


def test_torchrun_on_each_of_two_hosts_trains_one_job(hosts, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
                "--master-addr", "first", "--master-port", "29400", "--node-rank"]  # fmt: skip
    check(run_on_both(hosts, tmp_path, [[*launcher, node, "train.py"] for node in "01"]), ["first", "second"])


DOCUMENT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "hosts.md").read_text()


def test_the_loop_of_the_document_starts_all_hosts_over_ssh(hosts, tmp_path):
    """With a program in place of ssh that enters the other host."""
    hosts.write_remote(tmp_path / "ssh")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(SCRIPT)
    (tmp_path / "job" / "key").write_text(secrets.token_hex(32))
    (tmp_path / "job" / "key").chmod(0o600)
    loop = next(part for part in re.findall(r"```text\n(.*?)```", DOCUMENT, re.DOTALL) if part.startswith("command="))
    for words, here in ((".venv/bin/python", sys.executable), ("--workers 1,4,4", "--workers 1,1"), (" third", "")):
        assert words in loop
        loop = loop.replace(words, here)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    check(hosts.run(0, ["sh", "-c", f"exec 2>&1; {loop}"], cwd=tmp_path, env=path).splitlines(), ["first", "second"])


@pytest.fixture
def closed_hosts(hosts):
    """Both drop whatever others begin with them."""
    if shutil.which("nft") is None:
        pytest.skip("needs the program nft")
    chain = "nft add chain inet filter input '{ type filter hook input priority 0; policy drop; }'"
    for host in range(2):
        hosts.run(host, ["sh", "-c", f"nft add table inet filter && {chain} && "
                         "nft add rule inet filter input iif lo accept && "
                         "nft add rule inet filter input ct state established,related accept"])  # fmt: skip
    yield hosts
    for host in range(2):
        hosts.run(host, ["nft", "delete", "table", "inet", "filter"])


def test_the_documented_rules_of_a_firewall_let_a_job_through(closed_hosts, tmp_path):
    hosts = closed_hosts
    lines = re.findall(r"^(first|second)\$ +sudo (nft .*)$", DOCUMENT, re.MULTILINE)
    assert [host for host, _ in lines] == ["first", "second"]
    launcher = [sys.executable, "-m", "isochron.launch", "--workers", "1,1", "--master", "first:29400", "--node"]
    (tmp_path / "train.py").write_text(SCRIPT)
    quiet = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    closed = [hosts.start(host, [*launcher, str(host), "train.py"], **quiet) for host in range(2)]
    with pytest.raises(subprocess.TimeoutExpired):
        closed[1].wait(15)
    for process in closed:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for host, (_, command) in enumerate(lines):
        hosts.run(host, ["sh", "-c", command])
    commands = [[*launcher, node, "train.py"] for node in "01"]
    check(run_on_both(hosts, tmp_path, commands), ["first", "second"])


@pytest.mark.parametrize("program", ["isochron", "python"])
def test_mpirun_with_a_host_file_trains_one_job(hosts, tmp_path, program):
    mpirun = pathlib.Path(sys.executable).with_name("mpirun")
    if not mpirun.exists() or "ISOCHRON_PROGRAM" not in os.environ:
        pytest.skip("needs an mpirun beside Python and ISOCHRON_PROGRAM")
    hosts.write_remote(tmp_path / "remote")
    (tmp_path / "hosts").write_text("first slots=1\nsecond slots=1\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = ["ISOCHRON_INTERFACE=eth0", "MASTER_ADDR=first", "MASTER_PORT=29400", "PYTHONPATH", "ISOCHRON_JOB_KEY",
                 "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"]  # fmt: skip
    command = [mpirun, "--allow-run-as-root", "--hostfile", "hosts", "-n", "2", "--prtemca", "plm_ssh_agent",
               tmp_path / "remote", *(word for name in variables for word in ("-x", name))]  # fmt: skip
    if program == "python":
        lines = hosts.run(0, [*command, sys.executable, tmp_path / "train.py"], cwd=tmp_path).splitlines()
        check(lines, ["first", "second"])
        return
    options = ["--dataset", "synthetic", "--model", "mlp", "--global-batch", "32", "--train-samples", "320",
               "--test-samples", "100", "--log", "run.jsonl"]  # fmt: skip
    hosts.run(0, [*command, os.environ["ISOCHRON_PROGRAM"], "train", *options], cwd=tmp_path)
    head, *lines = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert [worker["name"] for worker in head["workers"]] == ["first-0", "second-0"]
    steps = [line for line in lines if line["type"] == "step"]
    assert len(steps) == 10 and all(sum(step["batch_sizes"]) == 32 for step in steps)


# The nodes of a cluster ask each other for a token; a script without the address would make a cluster of its own.
RAY = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_DEDUP_LOGS": "0"}


def await_ray(hosts, program, what):
    """Until this Python program ends well on the first host."""
    deadline = time.monotonic() + 300
    while hosts.start(0, [sys.executable, "-c", program], stderr=subprocess.DEVNULL, env=RAY).wait(120) != 0:
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.5)


@pytest.fixture
def ray_cluster(hosts):
    """Ray's head on the first host, a node on the second."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    folder = tempfile.mkdtemp(prefix="ray-")  # not below tmp_path: names of sockets have to be short
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=2", "--disable-usage-stats"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": RAY}
    head = [*ray, "--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={folder}"]
    processes = [hosts.start(0, [*head, f"--node-ip-address={ADDRESSES[0]}"], **quiet)]
    await_ray(hosts, "import socket; socket.create_connection(('first', 6379))", "Ray's head")
    join = [*ray, f"--address={ADDRESSES[0]}:6379", f"--node-ip-address={ADDRESSES[1]}"]
    processes.append(hosts.start(1, join, **quiet))
    nodes = "import ray, sys; ray.init('auto', log_to_driver=False); sys.exit(len(ray.nodes()) != 2)"
    await_ray(hosts, nodes, "Ray's second node")
    yield hosts
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        process.wait(60)
    shutil.rmtree(folder, ignore_errors=True)


def test_ray_train_starts_a_worker_on_each_of_two_nodes(ray_cluster, tmp_path):
    variables = {**RAY, "RAY_ADDRESS": "first:6379"}
    output = ray_cluster.run(0, [sys.executable, RAY_SCRIPT], timeout=600, cwd=tmp_path, env=variables)
    lines = {match[0] for match in re.finditer(r"rank \d of 2 \S+ \d+ \d+ \w+", output)}
    places = {line.split()[1]: line.split()[4] for line in lines}
    assert sorted(places) == ["0", "1"] and sorted(places.values()) == ["first", "second"], output
    for line in lines:
        *_, one, other, complete = line.split()
        assert int(one) + int(other) == 32 and complete == "True", output
