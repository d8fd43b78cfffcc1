"""Watches a training loop that knows nothing of Isochron, and says what it would gain: who is slow, how long the others
wait for it, and how many times as fast the job would be with shares that fit its workers.

    model = DistributedDataParallel(model)
    isochron.torch.watch(model, optimizer)      # and nothing else; or: torchrun … -m isochron.watch train.py

Some steps are timed, as a job times its own: to a worker's last gradient, less what it waits for others. Hooks on the
model and the optimizer do it, and are gone afterwards. Workers tell each other what they have seen by the store of
their process group, and the first one writes a run log and the sentence. Whatever becomes of that store, or stands in
it, the loop goes on.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from isochron import job_key
from isochron.log_files import trouble_of_writing
from isochron.torch import cluster, collectives, probe
from isochron.torch.forecast import Forecast, draw
from isochron.torch.options import JobOptions
from isochron.torch.parallel import is_fsdp, is_fsdp1, time_fsdp
from isochron.torch.probe import Forward
from isochron.torch.sealed import SealedStore
from isochron.torch.stopwatch import Stopwatch, Waits
from isochron.watch import FEWEST, LOG, STEPS

log = logging.getLogger("isochron")

WARM_UP = 3  # steps that are not counted: the first ones allocate, compile and order DDP's buckets
PATIENCE = 20.0  # seconds: for the others, when the process ends
STORE_SECONDS = 5.0  # for an answer of the store, once

_watchers = 0


def watch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    log: str | os.PathLike[str] = LOG,
    steps: int = STEPS,
    probe: bool = True,
) -> Watch:
    """Watches the next `steps` steps of a stock loop; every worker calls it, after DDP or fully_shard.

    `log` is the run log that the first worker writes, and beside it the page of `isochron report`. With `probe`, the
    last watched batch and a quarter of it are computed a few times more, on every worker by itself, to see which part
    of a step does not depend on its batch; weights, gradients, buffers and random numbers stay as they are. Raises
    ValueError for a model that cannot be watched.
    """
    return Watch(model, optimizer, log=log, steps=steps, probe=probe)


class Watch:
    """`sentence` is empty until something is known, on the first worker alone; so is `gain`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        log: str | os.PathLike[str],
        steps: int,
        probe: bool,
    ) -> None:
        global _watchers
        if not isinstance(steps, int) or steps < FEWEST:
            raise ValueError(f"steps is {steps!r}; permitted: {FEWEST} or more")
        if is_fsdp1(model):
            raise ValueError("model is FullyShardedDataParallel's; permitted: DDP, fully_shard (FSDP2)")
        if trouble := trouble_of_writing(log):
            raise ValueError(f"log is {str(log)!r}; permitted: a file that can be written ({trouble})")
        _watchers += 1
        self.sentence = ""
        self.gain = math.nan
        self._number = _watchers
        self._model, self._path, self._steps, self._probes = model, Path(log), steps, probe
        self._device = next((one.device for one in model.parameters()), torch.device("cpu"))
        self._waits = Waits(self._device)
        self._stopwatch = Stopwatch(self._waits)
        self._began = time.perf_counter()
        self._readings: list[list[float] | None] = []  # of a step, as _reading() has it; None: it was no plain step
        self._batch = 0
        self._disturbed = False
        self._seen = 0
        self._forward: Forward | None = None
        self._fixed: float | None = None
        self._probing = False
        self._published = self._over = False
        self._told: dict[int, str] = {}  # by rank
        self._rank, self._size = 0, 1
        self._store: SealedStore | None = None
        if dist.is_available() and dist.is_initialized():  # kept: the loop may have ended its group when we need it
            self._rank, self._size = dist.get_rank(), dist.get_world_size()
            store = dist.distributed_c10d._get_default_store()
            self._store = SealedStore(store, job_key.mixed(f"watch {self._number}"), STORE_SECONDS)
        self._undo: list[Callable[[], None]] = []
        self._hook_up(_inner(optimizer))
        atexit.register(self.close)

    # Hooks.

    def _hook_up(self, optimizer: torch.optim.Optimizer) -> None:
        model, stopwatch = self._model, self._stopwatch
        if is_fsdp(model):
            time_fsdp(model, stopwatch, self._waits)
        else:
            unpredictable = isinstance(model, DistributedDataParallel) and model.find_unused_parameters
            stopwatch.watch(model.parameters(), unpredictable)
        if isinstance(model, DistributedDataParallel):
            self._replace(model, "_sync_buffers")
        collectives.listen(self._waits)
        handles = [
            model.register_forward_pre_hook(self._note_forward, with_kwargs=True),
            optimizer.register_step_pre_hook(self._end_backward),
            optimizer.register_step_post_hook(self._end_step),
        ]
        self._undo += [stopwatch.close, lambda: collectives.leave(self._waits), *(handle.remove for handle in handles)]
        stopwatch.start()

    def _replace(self, owner: Any, name: str) -> None:
        """By a function that counts its time as waiting."""
        function, own = getattr(owner, name), name in vars(owner)

        @functools.wraps(function)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            with self._waits.counted():
                return function(*arguments, **keywords)

        def put_back() -> None:
            if own:
                setattr(owner, name, function)
            else:
                delattr(owner, name)

        setattr(owner, name, timed)
        self._undo.append(put_back)

    def _unhook(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._forward = None

    def _note_forward(self, model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self._probing:
            return
        if not torch.is_grad_enabled() or not model.training:
            self._disturbed = True  # an evaluation is no part of a step
            return
        self._batch += probe.batch_of(arguments, keywords)
        if len(self._readings) + 1 == self._steps:
            self._forward = Forward.of(arguments, keywords, self._device)

    def _end_backward(self, *unused: Any) -> None:
        if self._stopwatch.saw_gradients or is_fsdp(self._model):
            self._stopwatch.stop()

    def _end_step(self, *unused: Any) -> None:
        if self._published:
            self._conclude(0.0)  # whoever took part in this step has said what it saw
            return
        self._seen += 1
        if self._seen > WARM_UP:
            self._readings.append(self._reading())
        self._waits.take()
        if len(self._readings) == self._steps:
            self._fixed = self._probe()
            self._publish()
        else:
            self._batch, self._disturbed = 0, False
            self._stopwatch.start()

    def _reading(self) -> list[float] | None:
        """Batch; start, computing, waiting meanwhile; end of the exchange, and of the step, since the start."""
        stopwatch = self._stopwatch
        if not stopwatch.saw_gradients or self._disturbed or self._batch == 0:
            return None
        seconds, waited, _ = stopwatch.measure(self._waits.take())
        ended = time.perf_counter() - stopwatch.started
        return [self._batch, stopwatch.started - self._began, seconds, waited, stopwatch.measure_reduction(), ended]

    def _probe(self) -> float | None:
        """The share of this worker's step that does not depend on the batch; None: it is not known."""
        obstacle = probe.obstacle(self._model, self._forward) if self._probes else "it was not wanted"
        known = [one[2] for one in self._readings if one is not None]
        if obstacle or not known or self._forward is None or self._batch != self._forward.batch:
            log.info("no probe: %s", obstacle or "a step has several batches")
            return None
        self._probing = True
        try:
            share, seconds = probe.measure_fixed_share(self._model, self._forward, self._device)
        except Exception as error:  # whatever becomes of the probe, the loop goes on
            log.warning("no probe: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
            return None
        finally:
            self._probing = False
        return share * min(seconds / statistics.median(known), 1.0)

    # What is found out.

    def _publish(self) -> None:
        self._published = True
        settings = JobOptions(global_batch=max(self._size, 1))
        cluster.take_defaults(settings)
        settings.kind = settings.kind or self._device.type
        said = {
            "introduction": settings.settings.introduction(self._device.type).encode(),
            "fixed": self._fixed,
            "readings": self._readings,
        }
        self._told[self._rank] = json.dumps(said)
        if self._rank == 0:
            self._conclude(0.0)
            return
        try:
            if self._store is not None:
                self._store.set(str(self._rank), self._told[self._rank])
        except RuntimeError as error:
            log.warning("the first worker does not hear what this one saw (%s)", str(error).splitlines()[0])
        self._finish()

    def _conclude(self, patience: float) -> None:
        """On the first worker, as soon as all others have said what they saw."""
        if self._rank > 0 or self._over:
            return
        try:
            if not self._hear(patience):
                return
            self._finish()
            self._tell([json.loads(self._told[rank]) for rank in range(self._size)])
        except Exception as error:  # without a key of the job others may write there whatever they like
            log.warning("what the others saw is not known (%s: %s)", type(error).__name__, *str(error).splitlines()[:1])
            self._finish()

    def _hear(self, patience: float) -> bool:
        """Whether all have said what they saw."""
        deadline = time.monotonic() + patience
        for rank in range(1, self._size):
            if rank not in self._told and self._store is not None:
                left = deadline - time.monotonic()
                said = self._store.wait(str(rank), left) if patience else self._store.get(str(rank))
                if said is None:
                    return False
                self._told[rank] = said
        return True

    def _tell(self, told: list[dict[str, Any]]) -> None:
        forecast = Forecast(told)
        self.gain, self.sentence = forecast.gain, forecast.sentence
        if forecast.records and forecast.write(self._path):
            self.sentence += f" The page: {draw(self._path) or f'isochron report {self._path}'}"
        print(f"isochron: {self.sentence}", file=sys.stderr, flush=True)

    def _finish(self) -> None:
        self._over = True
        self._unhook()
        atexit.unregister(self.close)
        if self._store is not None:
            self._store.close()

    def close(self) -> None:
        """Ends the watch with what was seen until now; it is called by itself when the process ends."""
        if not self._published and sum(one is not None for one in self._readings) >= FEWEST:
            self._publish()
        if self._published:
            self._conclude(PATIENCE)
        self._finish()


def _inner(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer within those of Accelerate and Lightning, which are told of every backward pass."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"optimizer is a {type(optimizer).__name__}; permitted: one of torch.optim's")
    return optimizer
