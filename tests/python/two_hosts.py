"""Two hosts, `first` and `second`: network and host-name namespaces of this machine with a cable between them. Neither
reaches the other's loopback, nor anything else; the files are the same on both."""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
NAMES = ("first", "second")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
# The second host's workers are slower by 20 ms a sample.
SCRIPT = """
import os, time
import torch
import isochron.torch as isochron

torch.manual_seed(1)
dataset = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = isochron.Job(global_batch=32, timeout=120.0)
model, optimizer = job.prepare(model, optimizer)
for x, y in job.loader(dataset):
    time.sleep(0.02 * len(x) * (os.uname().nodename == "second"))
    job.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
print("rank", job.rank, "of", job.size, os.uname().nodename, *job.batch_sizes, job.ledger.complete, flush=True)
job.close()
"""


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class TwoHosts:
    """Starts programs there; whatever is left of them ends with the hosts."""

    def __init__(self, folder, stack):
        if os.geteuid() != 0 or any(shutil.which(program) is None for program in ("ip", "nsenter", "unshare")):
            pytest.skip("needs root and the programs ip, nsenter and unshare, to make network namespaces")
        self.namespaces = [f"isochron-{os.getpid()}-{name}" for name in NAMES]
        self.table = folder / "hosts"
        known = ["127.0.0.1 localhost", *map(" ".join, zip(ADDRESSES, NAMES, strict=True))]
        self.table.write_text("\n".join(known) + "\n")
        for namespace in self.namespaces:
            try:
                ip("netns", "add", namespace)
            except subprocess.CalledProcessError:
                pytest.skip("cannot make network namespaces here")
            stack.callback(self._remove, namespace)
        ends = [("eth0", "netns", namespace) for namespace in self.namespaces]
        ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for namespace, address in zip(self.namespaces, ADDRESSES, strict=True):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", namespace, "link", "set", link, "up")

    @staticmethod
    def _remove(namespace):
        for process in ip("netns", "pids", namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        ip("netns", "delete", namespace)

    def start(self, host, command, **options):
        """`command` on the host of this number, as subprocess.Popen starts it."""
        variables = {"PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}", "GLOO_SOCKET_IFNAME": "eth0",
                     "OMP_NUM_THREADS": "1", "ISOCHRON_JOB_KEY": "a secret of these two hosts"}  # fmt: skip
        environment = {**os.environ, **variables, **options.pop("env", {})}
        words = [*self._enter(host, 'exec "$@"'), self.table, *command]
        return subprocess.Popen(words, env=environment, start_new_session=True, text=True, **options)

    def _enter(self, host, command):
        """The words that run a command of the shell on the host; the first argument is the table of hosts."""
        inside = f'hostname {NAMES[host]} && mount --bind "$0" /etc/hosts && {command}'
        enter = ["nsenter", f"--net=/run/netns/{self.namespaces[host]}", "unshare", "--uts", "--mount"]
        return [*enter, "sh", "-c", inside]

    def write_remote(self, path):
        """A program in place of ssh that takes HOST COMMAND, and no options, from any of the hosts to another."""
        lines = ["#!/bin/sh", "host=$1", "shift", 'command="$*"', 'case "$host" in']
        for host, name in enumerate(NAMES):
            enter = shlex.join(self._enter(host, 'eval "$1"'))
            lines.append(f'{name}) exec {enter} {self.table} "$command" ;;')
        path.write_text("\n".join([*lines, "esac", ""]))
        path.chmod(0o755)

    def run(self, host, command, timeout=300, **options):
        """What `command` wrote; it must end well."""
        process = self.start(host, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        output, errors = process.communicate(timeout=timeout)
        assert process.returncode == 0, output + errors
        return output


def check(lines, ranks, size=2):
    """What SCRIPT wrote on both hosts: `ranks` says on which host each rank has to be."""
    seen = sorted((words for line in lines if (words := line.split())[:1] == ["rank"]), key=lambda words: int(words[1]))
    assert [(int(words[1]), int(words[3]), words[4]) for words in seen] == [
        (rank, size, host) for rank, host in enumerate(ranks)
    ], lines
    for *_, complete in seen:
        assert complete == "True", lines
    batches = [int(word) for word in seen[0][5:-1]]
    fast = sum(batch for batch, host in zip(batches, ranks, strict=True) if host == "first")
    assert sum(batches) == 32 and fast > 1.3 * (32 - fast), lines
