"""Isochron for PyTorch: keep your loop, change three lines.

    import isochron.torch as isochron
    job = isochron.Job(global_batch=256)
    model, optimizer = job.prepare(model, optimizer)
    for epoch in job.epochs(10):
        for x, y in job.loader(dataset):                    # my share of every global batch
            job.backward(loss_fn(model(x), y))              # mean over my samples
            optimizer.step()
            optimizer.zero_grad()

docs/pytorch.md has the rest.
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError("isochron.torch needs PyTorch: pip install isochron[torch]", name="torch")

from isochron._core import EventRecord, StepRecord, UpdateRecord, WorkerStep
from isochron.errors import (
    Error,
    InvariantError,
    NonFiniteError,
    PeerError,
    PeerLostError,
    SampleError,
    TimeoutError,
)
from isochron.torch.dropout import Dropout
from isochron.torch.job import Job
from isochron.torch.loader import Loader
from isochron.torch.options import JobOptions
from isochron.torch.profiling import profile
from isochron.torch.shards import Shards
from isochron.torch.watching import Watch, watch

__all__ = [
    "Dropout",
    "Error",
    "EventRecord",
    "InvariantError",
    "Job",
    "JobOptions",
    "Loader",
    "NonFiniteError",
    "PeerError",
    "PeerLostError",
    "SampleError",
    "Shards",
    "StepRecord",
    "TimeoutError",
    "UpdateRecord",
    "Watch",
    "WorkerStep",
    "profile",
    "watch",
]
