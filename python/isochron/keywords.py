"""The keywords of a job, typed. Written by scripts/options.py from isochron/core/job_settings.cc; do not edit."""

from __future__ import annotations

from typing import Literal, TypedDict


class JobKeywords(TypedDict, total=False):
    """What isochron.torch.Job and isochron.tensorflow.Job take besides global_batch."""

    # What splits it; see 'isochron policies'
    policy: str
    # The log of an earlier run of these workers, whose speeds the first split follows; empty: equal shares
    start_from: str
    # Gradients: exact are one big batch's, mean for comparison
    weighting: Literal["exact", "mean"]
    # The samples that do not fill a step: taken or left out
    last_batch: Literal["keep", "drop"]
    # Sets parameters and the order of the samples
    seed: int
    # BatchNorm over the global batch, not each worker's samples
    sync_batch_norm: bool
    # In step, in local rounds, each on its own, on its own within a bound
    sync: Literal["bsp", "local", "asp", "ssp"]
    # ssp: iterations ahead of the slowest at most
    staleness: int
    # asp, ssp: what an update's learning rate follows
    push_rate: Literal[
        "none", "batch-linear", "batch-sqrt", "staleness", "batch-linear+staleness", "batch-sqrt+staleness"
    ]
    # asp, ssp: less momentum, since asynchrony adds some
    momentum_correction: bool
    # asp, ssp: over TensorFlow's own servers, or over sockets of our own, which are faster
    transport: Literal["tensorflow", "sockets"]
    # local: steps between two exchanges; 0: chosen
    round_steps: int
    # local: of the time, for exchanges, if steps are chosen
    network_share: float
    # local: what takes the averaged change of a round
    outer: Literal["average", "nesterov"]
    # local: its learning rate; 0: 1 with average, 0.7 with nesterov
    outer_lr: float
    # local: its momentum, with nesterov
    outer_momentum: float
    # How the learning rate follows the global batch
    lr_rule: Literal["none", "linear", "sqrt", "legw", "adascale"]
    # The batch that the rate was tuned for; 0: the global batch
    reference_batch: int
    # Steps in which the rate rises to its value
    warmup_steps: int
    # Its name, for people; empty: worker-K, on several hosts HOST-K
    name: str
    # Workers of one kind share the shape of their time curve; empty: the device's
    kind: str
    # Nominal speed against the others; 0: unknown
    weight: float
    # Samples it takes at least
    min_batch: int
    # Samples it takes at most; 0: no limit
    max_batch: int
    # It takes multiples of this
    granularity: int
    # Samples it computes at a time; 0: all
    micro_batch: int
    # What they travel as
    compression: Literal["none", "bf16", "int8"]
    # Seconds that a worker may keep the others waiting before it is out
    timeout: float
    # When a gradient is not finite: end, leave the step out, go back to a checkpoint
    on_nonfinite: Literal["stop", "skip", "rollback", "ignore"]
    # When the dataset fails at a sample: end everywhere, or go on without it
    on_bad_sample: Literal["stop", "skip"]
    # SIGTERM and SIGINT end the loops of all at one step
    handle_signals: bool
