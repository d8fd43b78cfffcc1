"""Several workers on one GPU: shares of it by NVIDIA's Multi-Process Service (MPS), and NCCL among them.

NCCL refuses two ranks on one GPU, except that 2.30 and later permit it when told to. That is an experiment of NCCL's:
with four ranks its collectives hang now and then, whatever runs on them. So everything here runs under a watchdog,
and after a hang with a new MPS, since the old one does not answer any more.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile


@contextlib.contextmanager
def mps():
    """The variables of processes that use an MPS of their own, which ends with this."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise SystemExit("no nvidia-cuda-mps-control here: this needs an NVIDIA GPU with its driver's tools")
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for place in places.values():
            pathlib.Path(place).mkdir()
        daemon = subprocess.Popen([control, "-f"], env={**os.environ, **places}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            yield places
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], input="quit -t 2\n", env={**os.environ, **places}, text=True, timeout=10,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            end([daemon])


def nccl(library, workers):
    """The variables by which `workers` processes on one GPU use this libnccl.so.2; without one they use gloo."""
    if library is None:
        return {}
    return {
        "LD_PRELOAD": str(library), "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": "1" if workers > 2 else "2",  # kernels of all ranks must be on the GPU at the same time
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",  # MPS has fewer, so that streams wait for each other though they need not
    }  # fmt: skip


def start(command, environment, **arguments):
    """A process of its own session, so that end() gets its children, too."""
    return subprocess.Popen(
        list(map(str, command)), env={**os.environ, **environment}, start_new_session=True, **arguments
    )


def end(processes):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait()
