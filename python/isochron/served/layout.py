"""Parameters laid end to end and cut into shares of equal size. A pure function of their sizes: everybody computes the
same.

Parameters of one group of the optimizer and one type of number lie in one strip. Every strip is cut evenly into as many
slices as there are shards, also in the middle of a parameter, so every shard holds a slice of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Strip:
    group: int  # of the optimizer
    kind: str  # of number, as the framework names it
    width: int  # bytes of a number
    elements: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.width * self.elements


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies."""

    strip: int
    first: int  # element of the strip
    last: int  # one past the end


@dataclass(frozen=True)
class Layout:
    strips: list[Strip]
    slots: list[Slot]  # in the order of the parameters
    shards: int

    def slice_of(self, strip: int, shard: int) -> tuple[int, int]:
        """Elements of the strip that the shard holds."""
        elements = self.strips[strip].elements
        return elements * shard // self.shards, elements * (shard + 1) // self.shards

    def bytes_of(self, strip: int, shard: int) -> tuple[int, int]:
        first, last = self.slice_of(strip, shard)
        width = self.strips[strip].width
        return first * width, last * width

    def shard_size(self, shard: int) -> int:
        """Bytes."""
        sizes = (self.bytes_of(strip, shard) for strip in range(len(self.strips)))
        return sum(last - first for first, last in sizes)


def make_layout(groups: Sequence[Sequence[tuple[str, int, int]]], shards: int) -> Layout:
    """`groups`: of the optimizer; of every parameter the kind of its numbers, their width in bytes, how many."""
    strips: dict[tuple[int, str], int] = {}
    widths: list[int] = []
    lengths: list[int] = []
    slots: list[Slot] = []
    for group, parameters in enumerate(groups):
        for kind, width, elements in parameters:
            number = strips.setdefault((group, kind), len(strips))
            if number == len(lengths):
                widths.append(width)
                lengths.append(0)
            slots.append(Slot(number, lengths[number], lengths[number] + elements))
            lengths[number] += elements
    made = [Strip(group, kind, widths[number], lengths[number]) for (group, kind), number in strips.items()]
    return Layout(made, slots, shards)
