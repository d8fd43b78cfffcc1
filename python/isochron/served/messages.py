"""What workers, shards and the desk say to each other. Times are seconds on the worker's clock since the job began."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Push:
    """Goes with the gradients of an iteration to every shard."""

    samples: int
    weight: float  # what the gradient is a mean over: samples, or items such as tokens
    factor: float  # of the learning rate
    settings: list[dict[str, Any]]  # of the optimizer, by strip
    round: int = 0
    round_samples: int = 0  # with bound 0: of all workers together; 0: applied as it comes
    skipped: bool = False  # there is no gradient: a loss scale was too large

    def to_words(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_words(words: dict[str, Any]) -> Push:
        return Push(**words)


@dataclass
class Report:
    """The worker is free; what there is to say of the iteration before."""

    finished: bool = False  # an iteration, whose update is applied; the rest of this block is about it
    batch: int = 0
    start: float = 0.0  # it was told to begin
    seconds: float = 0.0  # from then to the moment at which the shards had its update
    compute_seconds: float = 0.0  # of that, up to the last local gradient, parameters at hand
    waited: float = 0.0  # before it, for being told to begin
    cpu: float = math.nan
    memory: float = math.nan
    loss: float = math.nan
    rate_factor: float = 1.0
    staleness: int = 0
    warm: bool = True  # False: its time says nothing, since something was compiled in it

    stop: int = 0  # 0: go on; 1: stop; 1 + n: stop because of signal n
    numbers: str = ""  # loss or gradient was not finite, in words, and the job is to end; empty: not so

    def to_words(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Update:
    """An update that was applied: a line of the run log."""

    number: int
    epoch: int
    position: int
    worker: int
    batch: int
    start: float
    seconds: float
    compute_seconds: float
    waited: float
    exchange_seconds: float
    rate_factor: float
    changed: bool
    reason: str
    words: str
    loss: float
    staleness: int


@dataclass
class Order:
    """What to do next."""

    meet: bool = False  # all come together: everything that may be used is
    # Otherwise: the samples at positions first to last of the epoch.
    first: int = 0
    last: int = 0
    iteration: int = 0  # of this worker
    lead: int = 0  # iterations ahead of the slowest
    round_samples: int = 0  # with bound 0: of the round
    # The split that the desk goes by.
    step: int = 0
    batch_sizes: list[int] = field(default_factory=list)
    learning_rate_factor: float = 1.0
    changed: bool = False
    reason: str = "started"
    words: str = ""
    news: list[Update] = field(default_factory=list)  # since this worker last asked
    stopping: bool = False
    stop_signal: int = 0
    controller: str = ""  # its state, at a meeting

    @property
    def batch(self) -> int:
        return self.last - self.first

    def to_words(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_words(words: dict[str, Any]) -> Order:
        return Order(**{**words, "news": [Update(**update) for update in words["news"]]})
