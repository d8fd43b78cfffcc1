"""Gets this worker out of an exchange over NCCL that will never end, since a worker of it is lost, late or has given
up.

NCCL's kernels wait on the GPU, for ever, and whoever waits for the GPU waits with them. So a thread looks after the
others; when one is gone it says so in the store, where the others see it, and aborts the communicators. Kernels that
are aborted leave behind gradients that are none, here and perhaps with those they were sending to: a gradient counts
only if nobody had said anything when it was complete.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

POLL_SECONDS = 0.2
CLOSING_SECONDS = 5.0  # for the thread, which may wait for the store or for NCCL


class Watch:
    """`find` says why the group is of no use any more, "" if it is; `told` what somebody has said of that, which `tell`
    does."""

    def __init__(
        self, find: Callable[[], str], told: Callable[[], str], tell: Callable[[str], None], timeout: float
    ) -> None:
        self._find, self._told, self._tell, self._timeout = find, told, tell, timeout
        self._waiting_since: float | None = None
        self._reason = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="isochron-watch", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # in the store when the interpreter ends, it would end the process with an error

    def await_gradients(self) -> str:
        """Waits for this device; why what it has computed does not count, "" if it does."""
        self._waiting_since = time.monotonic()
        if torch.cuda.is_initialized():  # in a job with GPUs there may be workers without one
            torch.cuda.current_stream().synchronize()
        self._waiting_since = None
        return self._reason or _ask(self._told)

    def close(self) -> None:
        atexit.unregister(self.close)
        self._ended.set()
        self._thread.join(CLOSING_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            since = self._waiting_since
            late = since is not None and time.monotonic() - since > self._timeout
            self._reason = f"timed out waiting for gradients after {self._timeout:g} s" if late else _ask(self._find)
            if self._reason:
                with contextlib.suppress(Exception):  # the store may be what is lost
                    self._tell(self._reason)
                abort_nccl()
                return


def _ask(question: Callable[[], str]) -> str:
    try:
        return question()
    except Exception as error:
        return f"the store is lost ({error})"


def abort_nccl() -> None:
    """Every communicator of this process: one that is lost is missing from all that it was in."""
    for group in list(dist.distributed_c10d._world.pg_names):
        with contextlib.suppress(Exception):
            backend = group._get_backend(torch.device("cuda"))
            if isinstance(backend, dist.ProcessGroupNCCL):
                backend.abort()


@contextlib.contextmanager
def errors_are_ours() -> Iterator[None]:
    """Groups made here leave it to us what becomes of a lost worker; torch would end this process, too."""
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    before = os.environ.get(name)
    os.environ.setdefault(name, "0")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
