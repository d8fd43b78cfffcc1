"""A job as a value: into a state_dict or a file and back, and from one worker to another."""

from __future__ import annotations

import io
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from isochron._core import Worker, __version__
from isochron.errors import Error

if TYPE_CHECKING:
    from isochron.torch.job import Job

_SAME = ("global_batch", "seed", "last_batch", "policy")
_WORKER = ("id", "kind", "weight", "min_batch", "max_batch", "granularity", "name")


def describe(worker: Worker) -> dict[str, Any]:
    return {name: getattr(worker, name) for name in _WORKER}


def state_of(job: Job) -> dict[str, Any]:
    return {
        "version": __version__,
        **{name: getattr(job.options, name) for name in _SAME},
        "workers": [describe(worker) for worker in job._controller.workers],
        "next_id": job._next_id,
        "ceilings": job._ceilings.state().decode(),
        **place_of(job),
        **job._more_state(),
    }


def place_of(job: Job) -> dict[str, Any]:
    """What changes from step to step."""
    source = job._source
    return {
        "controller": job._controller.state().decode(),
        "dataset_size": source.size if source is not None else 0,
        "epoch": job.epoch,
        "position": source.position if source is not None else 0,
        "ledger": job._ledger.state().decode() if job._ledger is not None else "",
    }


def restore(job: Job, saved: dict[str, Any]) -> None:
    for name in _SAME:
        if saved[name] != getattr(job.options, name):
            raise ValueError(f"{name} is {getattr(job.options, name)}; permitted: that of the state, {saved[name]}")
    job._ceilings.restore(saved["ceilings"].encode())
    # What was learned of workers that stay (by rank) is kept.
    controller = job._new_controller([Worker(**described) for described in saved["workers"]])
    controller.restore(saved["controller"].encode())
    job._controller = controller
    job._next_id = saved["next_id"]
    for rank, worker in enumerate(job._members):
        if rank < len(saved["workers"]):
            worker.id = saved["workers"][rank]["id"]
        else:
            worker.id = job._next_id
            job._next_id += 1
    limited = job._with_ceilings()
    if [describe(worker) for worker in limited] != [describe(worker) for worker in controller.workers]:
        controller.change_workers(limited)
    job._decision = controller.decision
    job._take_more_state(saved)
    job._group.end()
    if job._source is None:
        job._resumed = saved
    else:
        follow(job, saved)


def follow(job: Job, saved: dict[str, Any]) -> None:
    """The place in the data."""
    source = job._source
    assert source is not None
    job._resumed = None
    if not saved["ledger"]:
        return  # saved before there was a loader
    if saved["dataset_size"] != source.size:
        raise ValueError(f"the dataset's size is {source.size}; permitted: that of the state, {saved['dataset_size']}")
    source.seek(saved["epoch"], saved["position"])
    job._ledger = source.new_ledger()
    job._ledger.restore(saved["ledger"].encode())
    job._loop_epoch = source.epoch


def go_back(job: Job, place: dict[str, Any]) -> None:
    """To an earlier step of the same workers."""
    job._controller.restore(place["controller"].encode())
    job._decision = job._controller.decision
    follow(job, place)


# With models and optimizers.


def pack(job: Job) -> dict[str, Any]:
    return {
        "job": state_of(job),
        "models": [model.state_dict() for model in job._models.plain()],
        "optimizers": [optimizer.state_dict() for optimizer in job._optimizers],
    }


def unpack(job: Job, packed: dict[str, Any]) -> None:
    for model, saved in zip(job._models.plain(), packed["models"], strict=True):
        model.load_state_dict(saved)
    for optimizer, saved in zip(job._optimizers, packed["optimizers"], strict=True):
        optimizer.load_state_dict(saved)


def _pack_sharded(job: Job) -> dict[str, Any]:
    """Of FSDP, whole tensors on the first worker. Collective."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    models = job._models.models
    return {
        "job": state_of(job),
        "models": [get_model_state_dict(model, options=options) for model in models],
        "optimizers": [
            get_optimizer_state_dict(models[0], optimizer, options=options) for optimizer in job._optimizers
        ],
    }


def _unpack_sharded(job: Job, packed: dict[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    models = job._models.models
    for model, saved in zip(models, packed["models"], strict=True):
        set_model_state_dict(model, saved, options=options)
    for optimizer, saved in zip(job._optimizers, packed["optimizers"], strict=True):
        set_optimizer_state_dict(models[0], optimizer, saved, options=options)


def save(job: Job, path: str | os.PathLike[str]) -> None:
    packed = _pack_sharded(job) if job._models.sharded else pack(job) if job.is_first else {}
    packed["others"] = [other.state_dict() for other in job._others]
    failure = ""
    if job.is_first:
        try:
            _write(Path(path), packed)
        except OSError as error:
            failure = f"cannot write {path}: {error.strerror or error}"
    failure = job._world.broadcast(failure, 0)
    if failure:
        raise Error(failure)


def _write(path: Path, packed: dict[str, Any]) -> None:
    """Whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        try:
            torch.save(packed, file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise


def load(job: Job, path: str | os.PathLike[str]) -> None:
    content: bytes | str = b""
    if job.is_first:
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            content = f"cannot read {path}: {error.strerror or error}"
    content = job._world.broadcast(content, 0)
    if isinstance(content, str):
        raise Error(content)
    try:
        packed = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise Error(f"{path} is no file that a job saved ({error})") from error
    (_unpack_sharded if job._models.sharded else unpack)(job, packed)
    for other, saved in zip(job._others, packed["others"], strict=True):
        other.load_state_dict(saved)
    restore(job, packed["job"])
