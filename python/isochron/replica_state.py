"""The text of a replica's state, whose parts may be taken out and changed: what a job that is not in step learns from
its coordinator takes the place of what the replica knows."""

from __future__ import annotations

from collections.abc import Mapping


def changed(state: bytes, parts: Mapping[str, str], fields: Mapping[str, int | float | str]) -> bytes:
    """A replica's state, which is a line `n NAME NUMBER...` or `w NAME TEXT` for every field, with other values in
    some fields, and with other states in place of all fields whose names begin with a prefix."""
    lines = [line for line in state.decode().splitlines() if not line[2:].startswith(tuple(parts))]
    lines = [line for line in lines if line.split(" ", 2)[1] not in fields]
    lines += [f"{line[:2]}{prefix}{line[2:]}" for prefix, part in parts.items() for line in part.splitlines()]
    for name, value in fields.items():
        if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"w {name} {escaped}")
        else:
            lines.append(f"n {name} {float(value).hex().replace('0x', '')}")
    return "".join(f"{line}\n" for line in lines).encode()


def part(state: bytes, prefix: str) -> str:
    """The fields whose names begin with the prefix, as a state of their own."""
    lines = [line for line in state.decode().splitlines() if line[2:].startswith(prefix)]
    return "".join(f"{line[:2]}{line[2 + len(prefix) :]}\n" for line in lines)


def value_of(state: bytes, name: str) -> str:
    """The value of a field with one number, as the text has it."""
    return next(line.split(" ", 2)[2] for line in state.decode().splitlines() if line.split(" ", 2)[1] == name)
