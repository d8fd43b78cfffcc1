"""What workers tell each other besides numbers, as bytes that nobody who reads them can be made to run.

Words are JSON. States, which hold tensors and what users' optimizers remember, are files of torch.save, which are read
as torch.load(weights_only=True) reads them: tensors, numbers, texts, lists, tuples, sets and dictionaries. Whatever
else arrives, a pickle that calls something above all, is an Error that names its sender.
"""

from __future__ import annotations

import io
import json
from typing import Any

import torch

from isochron.errors import Error

MOST_WORDS = 256 << 20  # bytes


def pack_words(value: Any) -> bytes:
    """Of None, truth values, numbers, texts, and lists and dictionaries of them; tuples become lists."""
    return json.dumps(value, separators=(",", ":")).encode()


def unpack_words(data: bytes, sender: object) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        permitted = "permitted: JSON, of a worker of this version"
        raise Error(f"{sender} said what cannot be read ({error}); {permitted}") from error


def pack_state(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpack_state(data: bytes, sender: object) -> Any:
    """On the CPU."""
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # it says in many ways that it is no such file
        reason = (str(error) or repr(error)).splitlines()[0]
        raise Error(
            f"the state that {sender} sent cannot be read without running what is in it ({reason}); permitted in the "
            "state_dict() of optimizers and of what prepare() was given: tensors, numbers, texts, lists, tuples, sets "
            "and dictionaries, or classes that every worker has named in torch.serialization.add_safe_globals()"
        ) from error
