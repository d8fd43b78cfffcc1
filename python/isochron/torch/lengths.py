"""What the samples of a dataset cost, known before they are read: loader(dataset, lengths=..., cost=..., collate=...).

`lengths` are those of all samples: a list, an array or a tensor, a function of the sample's number, or the name of a
column of a Hugging Face dataset, whose entries are lengths or sequences. `cost` makes works of them: "linear", the
length; "attention", L + L^2 / (6 width), what a transformer of that width computes for a sequence, as
"attention:width=768"; or a function of a tensor of all lengths. `collate` says what the collate_fn does: "padded", all
samples are filled up to the longest; "packed", they come one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

COLLATES = ("padded", "packed")
WIDTH = 768  # of GPT-2


def check(lengths: Any, cost: Any, collate: Any, sampler: Any) -> None:
    """Raises ValueError on what cannot be; before the dataset is asked."""
    if collate not in COLLATES:
        raise ValueError(f"collate is {collate!r}; permitted: {', '.join(COLLATES)}")
    if not callable(cost):
        _width(cost)
    if lengths is None:
        if cost != "linear":
            raise ValueError(f"cost is {cost!r} without lengths=; permitted: with the lengths of the samples")
        return
    if sampler is not None:
        raise ValueError("lengths with a sampler=; permitted: one of them, since the job deals the samples by cost")


def _width(cost: Any) -> float | None:
    """The width of "attention"; None for "linear"."""
    if cost == "linear":
        return None
    if cost == "attention":
        return float(WIDTH)
    permitted = "permitted: linear, attention, attention:width=WIDTH, or a function of all lengths"
    if isinstance(cost, str) and cost.startswith("attention:width="):
        try:
            width = float(cost.removeprefix("attention:width="))
        except ValueError:
            width = 0.0
        if 0.0 < width < 1e9:
            return width
    raise ValueError(f"cost is {cost!r}; {permitted}")


def lengths_of(dataset: Any, lengths: Any) -> torch.Tensor:
    """The lengths of all samples, as float64."""
    size = len(dataset)
    if isinstance(lengths, str):
        found = torch.tensor(_column(dataset, lengths), dtype=torch.float64)
    elif callable(lengths):
        found = torch.tensor([float(lengths(index)) for index in range(size)], dtype=torch.float64)
    else:
        found = torch.as_tensor(lengths).to("cpu", torch.float64)
    if found.dim() != 1 or len(found) != size:
        what = f"{len(found)} numbers" if found.dim() == 1 else f"a tensor of {found.dim()} dimensions"
        raise ValueError(f"lengths are {what}; permitted: one for each of the dataset's {size} samples")
    bad = ~(torch.isfinite(found) & (found >= 0))
    if bool(bad.any()):
        index = int(bad.nonzero()[0])
        length = found[index].item()
        raise ValueError(f"the length of sample {index} is {length}; permitted: a finite number, 0 or more")
    return found


def _column(dataset: Any, name: str) -> list[float]:
    names: Sequence[str] | None = getattr(dataset, "column_names", None)
    if names is None or name not in names:
        there = "a dataset without columns" if names is None else f"its columns: {', '.join(names)}"
        raise ValueError(f"lengths is {name!r}; permitted: {there}, or lengths themselves, or a function of the index")
    return [float(len(entry)) if hasattr(entry, "__len__") else float(entry) for entry in dataset[name]]


def works_of(lengths: torch.Tensor, cost: str | Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """As float32, of all samples."""
    if callable(cost):
        works = torch.as_tensor(cost(lengths.clone()))
        if works.shape != lengths.shape:
            shape = tuple(works.shape)
            raise ValueError(f"cost() gave a tensor of shape {shape}; permitted: one number for each of the lengths")
    else:
        width = _width(cost)
        works = lengths if width is None else lengths + lengths * lengths / (6.0 * width)
    return works.to("cpu", torch.float32).contiguous()
