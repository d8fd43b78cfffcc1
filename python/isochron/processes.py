"""Processes of this host, as the kernel shows them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def machine(namespace: str) -> str:
    """Equal for processes of one host that share this namespace: "pid", "net"."""
    boot = number = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        number = os.readlink(f"/proc/self/ns/{namespace}")
    return f"{socket.gethostname()} {boot} {number}"


def state_of(process: int | str) -> str:
    """The kernel's letter for a process of this host: X if it is gone, Z if it has ended and nobody has asked how,
    T if it is stopped; ? if nobody knows."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except OSError:
        return "?"
