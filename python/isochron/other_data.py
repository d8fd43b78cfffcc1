"""What is said of other data that cannot be told from what a job trains on already."""

from __future__ import annotations

from typing import Any


def refusal(call: str, samples: Any, differs: str) -> ValueError:
    """`differs`: in what, from that of before."""
    return ValueError(
        f"{call} got another {type(samples).__name__}{differs} the one before; permitted: name= for one of them if "
        "they are different data, or the same name= for both if they are the same"
    )


def differs_at_ends(size: int) -> str:
    return f" with {size} samples, whose first or last one differs from that of"


STREAM_DIFFERS = ", which begins with other samples than"
