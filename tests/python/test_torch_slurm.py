"""docs/hosts.md under Slurm: its own daemons, of Debian's packages, on two hosts; native workers, too."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from two_hosts import ADDRESSES, NAMES, SCRIPT, check

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "hosts.md"
# Processors are counted, not bound: the nodes claim more than there are. Each has a folder of its own for PMIx.
SETTINGS = """ClusterName=two
SlurmctldHost=first
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/temporary.%n
StateSaveLocation={folder}/state
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
NodeName=first NodeAddr={first} CPUs=16 Features=old
NodeName=second NodeAddr={second} CPUs=16 Features=new
PartitionName=all Nodes=ALL Default=YES
"""


class Slurm:
    """A controller and two nodes; commands are given on the first host."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        for name in ("state", "spool.first", "spool.second", "temporary.first", "temporary.second"):
            (folder / name).mkdir()
        self.settings = folder / "slurm.conf"
        self.settings.write_text(SETTINGS.format(folder=folder, first=ADDRESSES[0], second=ADDRESSES[1]))
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(64))
        files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "seed", "log")]
        munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files]
        self.munge = subprocess.Popen(munge, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._daemon(0, "slurmctld", "-i")
        for host, name in enumerate(NAMES):
            self._daemon(host, "slurmd", "-N", name)

    def _daemon(self, host, program, *options):
        with (self.folder / f"{program}.{host}.log").open("w") as log:
            self.hosts.start(host, [program, "-D", "-f", self.settings, *options], stdout=log, stderr=log)

    def run(self, *command):
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # where the batch file finds python
        variables = {"SLURM_CONF": str(self.settings), "PATH": path}
        return self.hosts.run(0, command, cwd=self.folder, env=variables)

    def logs(self):
        return "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))

    def await_line(self, ask, wanted, what):
        deadline = time.monotonic() + 300
        while not re.search(wanted, seen := ask()):
            assert time.monotonic() < deadline, f"{what} did not come:\n{seen}\n{self.logs()}"
            time.sleep(0.2)

    def batch(self, text):
        """What the jobs of this batch file wrote, once they have ended."""
        (self.folder / "job.sh").write_text(text)
        self.run("sbatch", "--wait", "--output=job.out", "job.sh")
        return (self.folder / "job.out").read_text().splitlines()


@pytest.fixture(scope="module")
def slurm(hosts, tmp_path_factory):
    for program in ("slurmctld", "slurmd", "sbatch", "munged"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install slurmctld slurmd slurm-client munge")
    slurm = Slurm(hosts, tmp_path_factory.mktemp("slurm"))
    (slurm.folder / "train.py").write_text(SCRIPT)
    try:
        slurm.await_line(lambda: slurm.run("sinfo", "--noheader"), r" 2 +idle ", "two idle nodes")
        yield slurm
    finally:
        slurm.munge.terminate()
        slurm.munge.wait()


def documented(first):
    """The block of the document that begins like this, for the interface that these hosts have."""
    block = re.search(rf"^```text\n({re.escape(first)}.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    return block[1].replace("ib0", "eth0").replace("OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS=1")


def test_the_documented_batch_file_trains_one_job_on_two_nodes(slurm):
    check(slurm.batch(documented("#!/bin/bash\n#SBATCH --nodes=2")), ["first", "first", "second", "second"], size=4)


def test_the_documented_heterogeneous_job_meets_where_its_first_task_is(slurm):
    """The first group is the second host here: rank 0 is not on the first of the names in order."""
    text = documented("#!/bin/bash\n#SBATCH --nodes=1")
    assert text.count("--constraint=old") == text.count("--constraint=new") == 1
    text = text.replace("=old", "=other").replace("=new", "=old").replace("=other", "=new")
    check(slurm.batch(text), ["second", "first", "first"], size=3)


def test_the_signal_before_the_end_lets_every_worker_finish_the_same_step(slurm):
    longer = SCRIPT.replace("torch.randn(640,", "torch.randn(320000,").replace("timeout=120.0", "handle_signals=True")
    say = "    print('began' if job.step == 5 else '', flush=True)\n"
    longer = longer.replace("    job.backward(", say + "    job.backward(")
    ending = 'print("rank", job.rank, "ended at", job.step, job.ledger.complete, flush=True)\njob.close()\n'
    (slurm.folder / "long.py").write_text(longer[: longer.index('print("rank"')] + ending)
    (slurm.folder / "long.sh").write_text(documented("#!/bin/bash\n#SBATCH --nodes=2").replace("train.py", "long.py"))
    number = slurm.run("sbatch", "--parsable", "--output=long.out", "long.sh").strip()
    output = slurm.folder / "long.out"
    read = lambda: output.read_text() if output.exists() else ""  # noqa: E731
    slurm.await_line(read, "began", "the fifth step")
    slurm.run("scancel", "--signal=TERM", number)  # what --signal=TERM@120 does, and to whom
    slurm.await_line(read, r"(?s)(rank \d ended at .*?){4}", "the end of four workers")
    ends = {tuple(match) for match in re.findall(r"ended at (\d+) (\w+)", read())}
    assert len(ends) == 1 and ends.pop()[1] == "False", read()


@pytest.fixture
def native():
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    return program


def test_the_documented_batch_file_of_native_workers_trains_one_job_on_two_nodes(slurm, native):
    text = documented("#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2\nexport ISOCHRON_INTERFACE")
    small = "--dataset synthetic --model mlp --global-batch 64 --train-samples 4096 --test-samples 200"
    text = re.sub("isochron train .*", f"{native} train {small} --log native.jsonl", text)
    said = slurm.batch(text)
    log = slurm.folder / "native.jsonl"
    assert log.exists(), said
    header = json.loads(log.read_text().splitlines()[0])
    assert [worker["name"] for worker in header["workers"]] == ["first-0", "first-1", "second-0", "second-1"], said
    assert "Proven" in subprocess.run([native, "ledger", log], capture_output=True, text=True).stdout, said
