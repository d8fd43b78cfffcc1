"""The lengths and works of all samples of a dataset as tensors (isochron/lengths.py)."""

from __future__ import annotations

from typing import Any

import torch

from isochron import lengths as shared


def lengths_of(dataset: Any, lengths: Any) -> torch.Tensor:
    """The lengths of all samples, as float64: a list, an array or a tensor, a function of the sample's number, or the
    name of a column of a Hugging Face dataset, whose entries are lengths or sequences."""
    size = len(dataset)
    if isinstance(lengths, str):
        found = torch.tensor(shared.column(dataset, lengths), dtype=torch.float64)
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


def works_of(lengths: torch.Tensor, cost: shared.Cost) -> torch.Tensor:
    """The works of all samples, as float32."""
    works: torch.Tensor = shared.works_of(lengths.clone(), cost)
    return works.to("cpu", torch.float32).contiguous()
