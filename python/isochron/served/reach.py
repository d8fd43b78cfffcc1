"""The address at which the other workers reach this one."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from pathlib import Path

from isochron.errors import Error

LOOPBACK = "127.0.0.1"


def machine() -> str:
    """Equal for processes that reach each other over loopback."""
    boot = network = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        network = os.readlink("/proc/self/ns/net")
    return f"{socket.gethostname()} {boot} {network}"


def own_address(machines: list[str], meeting_place: str | None = None) -> str:
    """`machines`: of all workers. On one machine nothing else than loopback is needed. Otherwise it is the address from
    which this one would speak to the place where the workers met, or, on the machine of that place itself, that place:
    the others have reached it already."""
    if len(set(machines)) == 1:
        return LOOPBACK
    place = meeting_place or os.environ.get("MASTER_ADDR", "")
    for candidate in (_source_towards(place), _resolved(place), _resolved(socket.gethostname())):
        if candidate and not ipaddress.ip_address(candidate).is_loopback:
            return candidate
    raise Error(
        f"no address of {socket.gethostname()} is known that other hosts reach; MASTER_ADDR is '{place}'; permitted: "
        "the name or address of rank 0's host as the other hosts know it"
    )


def is_loopback(place: str) -> bool:
    """As it stands: other names may mean loopback on their own host and something else on the others."""
    try:
        return place == "localhost" or ipaddress.ip_address(place).is_loopback
    except ValueError:
        return False


def _source_towards(place: str) -> str:
    """The address of a datagram socket, which sends nothing by being connected."""
    with suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(place, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    return ""


def _resolved(place: str) -> str:
    with suppress(OSError):
        return str(socket.getaddrinfo(place, None)[0][4][0]) if place else ""
    return ""
