"""What samples of unequal length cost, the same for all frameworks: lengths=, cost=, collate= and count= of a loader.

`cost` makes works of lengths: "linear", the length; "attention", a L + b L^2, where b / a is learned from the times of
the steps; "attention:width=768", L + L^2 / (6 width), what a transformer of that width computes for a sequence; or a
function of an array of lengths. `collate` says what becomes of a worker's samples: "padded", all are filled up to the
longest; "packed", they come one behind the other.
`count="lengths"` says that losses are means over what the lengths count, such as tokens, not over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

COLLATES = ("padded", "packed")
Cost = str | Callable[[Any], Any]


def check(lengths: Any, cost: Any, collate: Any, sampler: Any = None, count: Any = None) -> None:
    """Raises ValueError on what cannot be; before the dataset is asked."""
    if collate not in COLLATES:
        raise ValueError(f"collate is {collate!r}; permitted: {', '.join(COLLATES)}")
    if count not in (None, "lengths"):
        raise ValueError(f"count is {count!r}; permitted: None (losses are means over samples), 'lengths'")
    if not callable(cost):
        _width(cost)
    if lengths is None:
        for name, value, standard in (("cost", cost, "linear"), ("count", count, None)):
            if value != standard:
                raise ValueError(f"{name} is {value!r} without lengths=; permitted: with the lengths of the samples")
        return
    if sampler is not None:
        raise ValueError("lengths with a sampler=; permitted: one of them, since the job deals the samples by cost")


def learns_squares(cost: Any) -> bool:
    """Works are lengths then, and what their squares cost is learned."""
    return isinstance(cost, str) and cost == "attention"


def _width(cost: Any) -> float:
    """The width of "attention"; 0 for "linear", and where the job has to learn what squares cost."""
    if cost == "linear" or learns_squares(cost):
        return 0.0
    if isinstance(cost, str) and cost.startswith("attention:width="):
        try:
            width = float(cost.removeprefix("attention:width="))
        except ValueError:
            width = 0.0
        if 0.0 < width < 1e9:
            return width
    permitted = "permitted: linear, attention, attention:width=WIDTH, or a function of all lengths"
    raise ValueError(f"cost is {cost!r}; {permitted}")


def works_of(lengths: Any, cost: Cost) -> Any:
    """The works of samples with these lengths, an array."""
    if callable(cost):
        works = cost(lengths)
        if getattr(works, "shape", ()) != lengths.shape:
            shape = tuple(getattr(works, "shape", ()))
            raise ValueError(f"cost() gave an array of shape {shape}; permitted: one number for each of the lengths")
        return works
    width = _width(cost)
    return lengths if width == 0.0 else lengths + lengths * lengths / (6.0 * width)


def column(dataset: Any, name: str) -> list[float]:
    """Lengths that a dataset with columns, such as one of Hugging Face's, has, or of the sequences that it has."""
    names = getattr(dataset, "column_names", None)
    if names is None or name not in names:
        there = "a dataset without columns" if names is None else f"its columns: {', '.join(names)}"
        raise ValueError(f"lengths is {name!r}; permitted: {there}, or lengths themselves, or a function of the index")
    return [length(entry) for entry in dataset[name]]


def length(entry: Any) -> float:
    return float(len(entry)) if hasattr(entry, "__len__") and getattr(entry, "ndim", 1) > 0 else float(entry)


def of_sample(sample: Any, name: str) -> float:
    """The length that an entry of a sample is, or has."""
    if not isinstance(sample, Mapping) or name not in sample:
        there = ", ".join(map(str, sample)) if isinstance(sample, Mapping) else f"none, it is a {type(sample).__name__}"
        raise ValueError(f"lengths is {name!r}; permitted: an entry of the samples ({there}), lengths, or a function")
    return length(sample[name])


def as_they_arrive(samples: Iterable[Any], said: str | Callable[[Any], float]) -> list[float]:
    """The lengths of samples, of which an entry or a function of a sample says how long it is."""
    return [of_sample(one, said) if isinstance(said, str) else float(said(one)) for one in samples]
