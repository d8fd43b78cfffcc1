"""Whether the workers' streams begin with the same samples: each reads its own copy, and keeps its share of it.

Whole numbers and texts must be equal. Of numbers that a machine may have computed, such as pixels, only the mean is
compared, and roughly: machines that differ decode an image a little differently.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from isochron.errors import Error

CLOSE = {"rel_tol": 1e-2, "abs_tol": 1e-4}


@dataclass
class Beginning:
    digest: int = 0  # of what must be equal
    means: list[float] = field(default_factory=list)
    kinds: int = 0  # of samples, by what must be equal of each

    @staticmethod
    def of(samples: Iterable[Any]) -> Beginning:
        one, seen = Beginning(), set[int]()
        for sample in samples:
            before, one.digest = one.digest, 0
            one._add(sample)
            seen.add(one.digest)
            one.digest = zlib.crc32(repr((before, one.digest)).encode())
        one.kinds = len(seen)
        return one

    @staticmethod
    def read(told: Any) -> Beginning:
        """As another worker told it. Raises Error if that is none."""
        try:
            return Beginning(int(told["digest"]), [float(mean) for mean in told["means"]], int(told["kinds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"a worker said what its stream begins with in words that make no sense ({error!r})") from error

    def is_like(self, other: Beginning) -> bool:
        return self.digest == other.digest and all(
            math.isclose(mine, theirs, **CLOSE) for mine, theirs in zip(self.means, other.means, strict=True)
        )

    def has_samples_of(self, other: Beginning) -> bool:
        """Whether they are the same ones in the same order, whatever became of their numbers: labels tell, or texts."""
        return self.digest == other.digest and self.kinds > 1

    def _add(self, value: Any) -> None:
        if isinstance(value, dict):
            for name, entry in value.items():
                self._say(name)
                self._add(entry)
        elif isinstance(value, (list, tuple)):
            self._say(len(value))
            for entry in value:
                self._add(entry)
        elif isinstance(value, float):
            self._add_mean(value)
        elif value is None or isinstance(value, (int, str, bytes)):
            self._say(value)
        else:
            self._add_array(value)

    def _add_array(self, value: Any) -> None:
        self._say(type(value).__name__)
        try:
            numbers = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            return  # it has none
        self._say(tuple(numbers.shape))
        if numbers.dim() < 2 and not numbers.is_floating_point() and not numbers.is_complex():
            self._say(numbers.tolist())
        elif numbers.numel() > 0:
            self._add_mean(numbers.double().mean().item() if not numbers.is_complex() else 0.0)

    def _add_mean(self, value: float) -> None:
        self._say(math.isfinite(value))
        self.means.append(value if math.isfinite(value) else 0.0)

    def _say(self, value: Any) -> None:
        self.digest = zlib.crc32(repr(value).encode(), self.digest)
