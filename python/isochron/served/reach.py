"""The address at which the other workers reach this one, and how all learn each other's."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from isochron import door, job_key
from isochron.errors import Error
from isochron.processes import machine

LOOPBACK = "127.0.0.1"


@dataclass
class Listening:
    """Where all workers listen, by rank, and the key that whoever connects must know."""

    listener: socket.socket  # this worker's
    hosts: list[str]
    places: list[tuple[str, int]]
    key: bytes


def listen(gather: Callable[[Any], list[Any]], rendezvous_host: str | None) -> Listening:
    """Collective. `gather` brings what everybody says, `rendezvous_host` is the host of rank 0 as the others know it.
    Workers whose machine() is the same reach each other over loopback."""
    listener = door.listen(own_address(gather(machine("net")), rendezvous_host))
    address, port = listener.getsockname()[:2]
    everybody = gather({"host": socket.gethostname(), "address": address, "port": port, "secret": job_key.make()})
    places = [(one["address"], one["port"]) for one in everybody]
    # Everybody's part of it: so no worker can be made to take the key of an earlier job.
    key = job_key.mixed("".join(one["secret"] for one in everybody))
    return Listening(listener, [one["host"] for one in everybody], places, key)


def own_address(machines: list[str], rendezvous_host: str | None = None) -> str:
    """`machines`: of all workers. On one machine nothing else than loopback is needed. Otherwise it is the address from
    which this one would speak to the place of the rendezvous, or, on the machine of that place itself, that place:
    the others have reached it already."""
    if len(set(machines)) == 1:
        return LOOPBACK
    place = rendezvous_host or os.environ.get("MASTER_ADDR", "")
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
