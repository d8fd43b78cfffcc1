"""Where this process stands in the job that a launcher started.

Variables of torchrun (and `python -m isochron.launch`), Slurm and Open MPI are understood, in that order; without any
the process is alone.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    rank: int
    size: int
    local_rank: int
    launcher: str  # "torchrun", "slurm", "open mpi"
    address: str  # of the rendezvous; empty: the launcher does not say
    port: int
    one_host: bool = False  # all workers are on this host, as far as the launcher says


def find_place(variables: Mapping[str, str] = os.environ) -> Place | None:
    """None: alone. Raises ValueError naming a variable that is no number or out of range."""
    if "RANK" in variables and "WORLD_SIZE" in variables:
        local = variables.get("LOCAL_WORLD_SIZE") == variables["WORLD_SIZE"]
        return _place(variables, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "", 0, local)
    if "SLURM_PROCID" in variables:
        size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in variables else "SLURM_NTASKS"
        step = variables.get("SLURM_JOB_ID", "") + "." + variables.get("SLURM_STEP_ID", "")
        local = (variables.get("SLURM_STEP_NUM_NODES") or variables.get("SLURM_NNODES")) == "1"
        return _place(
            variables, "slurm", "SLURM_PROCID", size, "SLURM_LOCALID", _slurm_first(variables), _port(step), local
        )
    if "OMPI_COMM_WORLD_RANK" in variables:
        local = variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") == variables.get("OMPI_COMM_WORLD_SIZE")
        run = variables.get("PMIX_NAMESPACE") or variables.get("OMPI_MCA_ess_base_jobid", "")
        return _place(
            variables, "open mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
            "127.0.0.1" if local else "", _port(run), local,
        )  # fmt: skip
    return None


def _place(
    variables: Mapping[str, str], launcher: str, rank: str, size: str, local: str, address: str, port: int,
    one_host: bool,
) -> Place:  # fmt: skip
    place = Place(
        rank=_whole(variables, rank),
        size=_whole(variables, size),
        local_rank=_whole(variables, local) if local in variables else 0,
        launcher=launcher,
        address=variables.get("MASTER_ADDR") or address,
        port=_whole(variables, "MASTER_PORT") if variables.get("MASTER_PORT") else port,
        one_host=one_host,
    )
    if place.rank >= place.size:
        raise ValueError(f"{rank} is {place.rank}; permitted: below {size}, {place.size}")
    return place


def _whole(variables: Mapping[str, str], name: str) -> int:
    text = variables.get(name, "")
    if not text.isdecimal():
        raise ValueError(f"{name} is '{text}'; permitted: a whole number, 0 or more")
    return int(text)


def _port(text: str) -> int:
    """The same on all workers of a run, and probably another one for the next run."""
    return 20000 + zlib.crc32(text.encode()) % 12000


def _slurm_first(variables: Mapping[str, str]) -> str:
    """The host of rank 0. The list of a heterogeneous step is in the order of names, not of its groups, and not all
    groups of the job need be in it."""
    hosts = hosts_of(variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_NODELIST", ""))
    for group in range(_whole(variables, "SLURM_HET_SIZE") if "SLURM_HET_SIZE" in variables else 0):
        for host in hosts_of(variables.get(f"SLURM_JOB_NODELIST_HET_GROUP_{group}", ""))[:1]:
            if host in hosts:
                return host
    return hosts[0] if hosts else ""


def hosts_of(nodes: str) -> list[str]:
    """Slurm's "gpu[03-04,9],login" is gpu03, gpu04, gpu9, login."""
    hosts = []
    for before, numbers, after in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)", nodes):
        for part in numbers.split(","):
            low, _, high = part.partition("-")
            span = range(int(low), int(high) + 1) if high else [low]
            hosts += [f"{before}{str(number).zfill(len(low))}{after}" for number in span]
    return hosts
