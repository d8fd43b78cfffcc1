"""A job as a value: into a state_dict or a file and back, and from one worker to another."""

from __future__ import annotations

import glob
import io
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from isochron._core import VERSION, Replica, State
from isochron.errors import Error
from isochron.torch.parallel import Models
from isochron.torch.world import World

_UNFINISHED = ".unfinished"
_KINDS = {"models": "models", "optimizers": "optimizers", "others": "schedulers and scalers"}


def of_replica(replica: Replica) -> dict[str, Any]:
    return {"version": VERSION, "replica": replica.state().decode()}


def for_replica(saved: dict[str, Any], own: bytes) -> bytes:
    """The replica's part of a saved job. `own` is the state of one that has just been made."""
    if "replica" in saved:
        return saved["replica"].encode()
    if "controller" not in saved:
        version = saved.get("version", "an unknown version")
        raise ValueError(f"the state is of {version}; permitted: what state_dict() of isochron {VERSION} returned")
    # As it was before jobs shared the native step protocol: the same parts, one by one.
    state = State(own)
    for name in ("controller", "ceilings", "roster", "place"):
        state.put(name, State(saved.get(name, "").encode()))
    fields: dict[str, Any] = {name: saved[name] for name in ("global_batch", "last_batch", "policy", "next_id")}
    fields |= {"seed": str(saved["seed"]), "roster.count": len(saved["workers"]), "place.known": bool(saved["ledger"])}
    for number, worker in enumerate(saved["workers"]):
        fields |= {f"roster.{number}.{name}": value for name, value in worker.items()}
    if saved["ledger"]:
        fields |= {f"place.{name}": saved[name] for name in ("dataset_size", "epoch", "position")}
        state.put("place.ledger", State(saved["ledger"].encode()))
    for name, value in fields.items():
        state.set(name, value)
    return state.to_bytes()


@dataclass
class Prepared:
    """What prepare() was given."""

    world: World
    models: Models
    optimizers: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)  # schedulers, scalers: saved with the job
    moves_others: bool = False  # with models and optimizers, from one worker to another
    written: int = 0  # checkpoints, by this worker
    waiting: dict[str, Any] | None = None  # what load() has read, until prepare() has been given as much

    def pack(self) -> dict[str, Any]:
        return {
            "models": [model.state_dict() for model in self.models.plain()],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "others": [other.state_dict() for other in self.others] if self.moves_others else [],
        }

    def unpack(self, packed: dict[str, Any]) -> None:
        for model, saved in zip(self.models.plain(), packed["models"], strict=True):
            model.load_state_dict(saved)
        for optimizer, saved in zip(self.optimizers, packed["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.moves_others:
            self._unpack_others(packed)

    def _unpack_others(self, packed: dict[str, Any]) -> None:
        for other, saved in zip(self.others, packed["others"], strict=True):
            other.load_state_dict(saved)

    def _pack_sharded(self) -> dict[str, Any]:
        """FSDP's tensors, whole, on the first worker. Collective."""
        from torch.distributed.checkpoint import state_dict as sharded

        options = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
        models = self.models.models
        return {
            "models": [sharded.get_model_state_dict(model, options=options) for model in models],
            "optimizers": [
                sharded.get_optimizer_state_dict(models[0], optimizer, options=options) for optimizer in self.optimizers
            ],
        }

    def _unpack_sharded(self, packed: dict[str, Any]) -> None:
        from torch.distributed.checkpoint import state_dict as sharded

        options = sharded.StateDictOptions(full_state_dict=True)
        models = self.models.models
        for model, saved in zip(models, packed["models"], strict=True):
            sharded.set_model_state_dict(model, saved, options=options)
        for optimizer, saved in zip(self.optimizers, packed["optimizers"], strict=True):
            sharded.set_optimizer_state_dict(models[0], optimizer, saved, options=options)

    def save(self, path: str | os.PathLike[str], job: dict[str, Any]) -> None:
        """Collective: the first worker writes, and all hear whether it could."""
        self.require_all()
        failure = ""
        for average in self.models.averages:
            self.world.guard("errors of compressed gradients", average.gather)
        if self.world.rank == 0 or self.models.sharded:
            try:
                self.write(path, job)
            except Error as error:
                failure = str(error)
        failure = self.world.broadcast_words(failure, 0)
        if failure:
            raise Error(failure)

    def write(self, path: str | os.PathLike[str], job: dict[str, Any]) -> None:
        """By the first worker alone; if models are sharded all must call it."""
        packed = self._pack_sharded() if self.models.sharded else self.pack()
        packed |= {"job": job, "others": [other.state_dict() for other in self.others],
                   "errors": [average.state_dict() for average in self.models.averages]}  # fmt: skip
        if self.world.rank == 0:
            try:
                _write(Path(path), packed)
            except OSError as error:
                raise Error(f"cannot write {path}: {error.strerror or error}") from error
            self.written += 1

    def catch_up(self) -> None:
        """Takes what load() has read, as soon as there is as much of everything; collective if models are sharded.
        Raises Error if there is more of something than was saved."""
        if self.waiting is None:
            return
        packed = self.waiting
        saved = {name: len(packed[name]) for name in _KINDS}
        if any(count > saved[name] for name, count in self._counts().items()):
            self.waiting = None
            raise self._difference(saved)
        if self._counts() != saved:
            return
        self.waiting = None
        (self._unpack_sharded if self.models.sharded else self.unpack)(packed)
        self._unpack_others(packed)
        for average, errors in zip(self.models.averages, packed.get("errors", ())):
            average.load_state_dict(errors)

    def require_all(self) -> None:
        """Raises Error if something of what load() has read is still waiting."""
        if self.waiting is not None:
            raise self._difference({name: len(self.waiting[name]) for name in _KINDS})

    def _counts(self) -> dict[str, int]:
        return {"models": len(self.models.models), "optimizers": len(self.optimizers), "others": len(self.others)}

    def _difference(self, saved: dict[str, int]) -> Error:
        def words(counts: dict[str, int]) -> str:
            return ", ".join(f"{counts[name]} {kind}" for name, kind in _KINDS.items())

        return Error(
            f"what restore() has read is of {words(saved)}, and prepare() was given {words(self._counts())}; "
            "permitted: as many, in the same order"
        )

    def load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Returns the job that was saved with it."""
        content, failure = b"", ""
        if self.world.rank == 0:
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                failure = f"cannot read {path}: {error.strerror or error}"
        if failure := self.world.broadcast_words(failure, 0):
            raise Error(failure)
        content = self.world.broadcast_bytes(content, 0)
        try:
            packed = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:
            raise Error(f"{path} is no file that a job saved ({error})") from error
        self.waiting = {**packed, "others": packed.get("others", [])}
        self.catch_up()
        return packed["job"]


def _write(path: Path, packed: dict[str, Any]) -> None:
    """Whole or not at all. What a first worker that was killed while it wrote has left goes."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*{_UNFINISHED}"):
        left.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f"{path.name}.", suffix=_UNFINISHED, delete=False
    ) as file:
        try:
            torch.save(packed, file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise
