"""What can go wrong, in the four kinds of docs/errors.md.

Bad configuration is a ValueError that names the option, the value and what is permitted. A defect in Isochron itself is
an InvariantError. Everything below is an Error: the environment refused.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from isochron._core import Error, InvariantError

__all__ = ["Error", "InvariantError", "NonFiniteError", "PeerError", "PeerLostError", "SampleError", "TimeoutError"]


class PeerError(Error):
    """Another worker is lost or late; `ranks` and `hosts` say which, as far as that is known."""

    def __init__(self, message: str, ranks: Sequence[int] = (), hosts: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)
        self.hosts = tuple(hosts)


class PeerLostError(PeerError):
    """A worker is gone."""


class TimeoutError(PeerError, builtins.TimeoutError):
    """A worker kept the others waiting for longer than the time-out."""


class NonFiniteError(Error):
    """A loss or a gradient is not finite."""


class SampleError(Error):
    """The dataset fails at one of its samples, whose number is `sample`."""

    def __init__(self, message: str, sample: int = -1, place: tuple[int, int] = (-1, -1)) -> None:
        super().__init__(message)
        self.sample = sample
        self.place = place  # epoch and position
