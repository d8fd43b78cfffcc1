"""Data frames of whichever library is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, Literal

Library = Literal["pandas", "polars"]
_LIBRARIES: tuple[Library, ...] = ("pandas", "polars")


def choose_library(wanted: Library | None = None) -> Library:
    """`wanted`, or the first that is installed. Raises `ValueError` or `ImportError`."""
    if wanted is not None:
        if wanted not in _LIBRARIES:
            raise ValueError(f"library is {wanted!r}; permitted: {', '.join(_LIBRARIES)}")
        return wanted
    for library in _LIBRARIES:
        if importlib.util.find_spec(library) is not None:
            return library
    raise ImportError("run logs as frames need pandas or polars: pip install isochron[pandas]")


def make_frame(rows: Sequence[dict[str, Any]], columns: Sequence[str], wanted: Library | None = None) -> Any:
    """A frame with `columns` first, empty where no row has them, then what else the rows have."""
    extra = dict.fromkeys(key for row in rows for key in row if key not in columns)
    data = {name: [row.get(name) for row in rows] for name in [*columns, *extra]}
    library = choose_library(wanted)
    module = importlib.import_module(library)
    if library == "pandas":
        return module.DataFrame(data)
    return module.DataFrame(data, strict=False, infer_schema_length=None)


def column(frame: Any, name: str) -> list[Any]:
    """The values of a column of either library's frame."""
    series = frame[name]
    return series.tolist() if hasattr(series, "tolist") else series.to_list()
