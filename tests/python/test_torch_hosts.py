"""Jobs on two hosts, as docs/hosts.md starts them. The hosts are network namespaces of this machine with a cable
between them: neither reaches the other's loopback, nor anything else."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
# The second host's worker is slower by 2 ms a sample.
SCRIPT = """
import os, sys, time
import torch
import isochron.torch as isochron

torch.manual_seed(1)
dataset = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = isochron.Job(global_batch=32, timeout=20.0)
model, optimizer = job.prepare(model, optimizer)
for x, y in job.loader(dataset):
    time.sleep(0.002 * len(x) * job.rank)
    job.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
print("rank", job.rank, "of", job.size, *job.batch_sizes, job.ledger.complete, flush=True)
job.close()
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts():
    """The names of the namespaces; 10.77.0.1 and 10.77.0.2 on eth0."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the program ip, to make network namespaces")
    names = [f"isochron-host-{os.getpid()}-{index}" for index in (0, 1)]
    with contextlib.ExitStack() as stack:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError:
                pytest.skip("cannot make network namespaces here")
            stack.callback(ip, "netns", "delete", name)
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "eth0", "netns", names[1])
        for index, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{index + 1}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", name, "link", "set", link, "up")
        yield names


def run_on(hosts, folder, commands):
    """What both wrote; both must end well."""
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
                   "ISOCHRON_JOB_KEY": "a secret of these two hosts"}  # fmt: skip
    processes = [
        subprocess.Popen(["ip", "netns", "exec", host, *command], cwd=folder, env=environment, start_new_session=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for host, command in zip(hosts, commands, strict=True)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in outputs]


def check(outputs):
    for rank, output in enumerate(outputs):
        words = output.split()
        assert words[:4] == ["rank", str(rank), "of", "2"], output
        fast, slow = map(int, words[4:6])
        assert fast + slow == 32 and fast > 2 * slow, output
        assert words[6] == "True"


def test_our_launcher_on_each_of_two_hosts_trains_one_job(hosts, tmp_path):
    launcher = [sys.executable, "-m", "isochron.launch", "--workers", "1,1", "--master", "10.77.0.1:29400", "--node"]
    check(run_on(hosts, tmp_path, [[*launcher, node, "train.py"] for node in "01"]))


def test_torchrun_on_each_of_two_hosts_trains_one_job(hosts, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
                "--master-addr", "10.77.0.1", "--master-port", "29400", "--node-rank"]  # fmt: skip
    check(run_on(hosts, tmp_path, [[*launcher, node, "train.py"] for node in "01"]))
