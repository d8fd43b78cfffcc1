"""Processes of this host, as the kernel shows them."""

from __future__ import annotations


def state_of(process: int | str) -> str:
    """The kernel's letter for a process of this host: X if it is gone, Z if it is dead and not buried yet, T if it is
    stopped; ? if nobody knows."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except OSError:
        return "?"
