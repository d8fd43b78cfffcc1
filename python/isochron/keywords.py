"""The keywords of a job, typed. Written by scripts/options.py from isochron/core/job_settings.cc; do not edit."""

from __future__ import annotations

from typing import Literal, TypedDict


class JobKeywords(TypedDict, total=False):
    """What isochron.torch.Job and isochron.tensorflow.Job take besides global_batch."""

    policy: str
    """What splits it; see 'isochron policies'."""
    start_from: str
    """The log of an earlier run of these workers, whose speeds the first split follows; empty: equal shares."""
    weighting: Literal["exact", "mean"]
    """Gradients; exact: those of one big batch; mean: the plain average, for comparison."""
    last_batch: Literal["keep", "drop"]
    """The samples that do not fill a step: taken or left out."""
    seed: int
    """Sets parameters and the order of the samples."""
    sync_batch_norm: bool
    """BatchNorm over the global batch, not each worker's samples."""
    staleness: int
    """ssp: iterations ahead of the slowest at most."""
    push_rate: Literal[
        "none", "batch-linear", "batch-sqrt", "staleness", "batch-linear+staleness", "batch-sqrt+staleness"
    ]
    """asp, ssp: what an update's learning rate follows."""
    momentum_correction: bool
    """asp, ssp: less momentum, since asynchrony adds some."""
    lr_rule: Literal["none", "linear", "sqrt", "legw"]
    """How the learning rate follows the global batch."""
    reference_batch: int
    """The batch that the rate was tuned for; 0: the global batch."""
    warmup_steps: int
    """Steps in which the rate rises to its value."""
    name: str
    """Its name, for people; empty: HOST-K, its host and its place there."""
    kind: str
    """Workers of one kind share the shape of their time curve; empty: the device's."""
    weight: float
    """Nominal speed against the others; 0: unknown."""
    min_batch: int
    """Samples it takes at least."""
    max_batch: int
    """Samples it takes at most; 0: no limit."""
    granularity: int
    """It takes multiples of this."""
    timeout: float
    """Seconds that a worker may keep the others waiting before it is removed."""
    on_nonfinite: Literal["stop", "skip", "ignore"]
    """When a gradient is not finite; stop: end; skip: leave the step out."""


class TorchJobKeywords(JobKeywords, total=False):
    """What isochron.torch.Job takes alone, or with values of its own."""

    sync: Literal["bsp", "local", "asp", "ssp"]
    """How workers keep in step; bsp: every step; local: once a round; asp: not at all; ssp: within a bound."""
    round_steps: int
    """local: steps between two exchanges; 0: chosen."""
    network_share: float
    """local: share of the time for exchanges, if steps are chosen."""
    outer: Literal["average", "nesterov"]
    """local: how the averaged change of a round is applied."""
    outer_lr: float
    """local: learning rate of outer; 0: 1 with average, 0.7 with nesterov."""
    outer_momentum: float
    """local: momentum of outer, with nesterov."""
    micro_batch: int
    """Samples it computes at a time; 0: all."""
    compression: Literal["none", "bf16", "int8"]
    """How gradients are sent."""
    on_bad_sample: Literal["stop", "skip"]
    """When the dataset fails at a sample: end everywhere, or go on without it."""
    handle_signals: bool
    """SIGTERM and SIGINT end the loops of all at one step."""


class TensorFlowJobKeywords(JobKeywords, total=False):
    """What isochron.tensorflow.Job takes alone, or with values of its own."""

    sync: Literal["bsp", "asp", "ssp"]
    """How workers keep in step; bsp: every step; asp: not at all; ssp: within a bound."""
    transport: Literal["tensorflow", "sockets"]
    """asp, ssp: over TensorFlow's own servers, or over sockets of our own, which are faster."""
