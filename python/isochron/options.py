"""What every job is told, whatever trains it. The options are those of isochron/core/job_settings.cc, which checks
them; a framework adds what is no plain value, such as functions."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from isochron import _core

_TABLE = _core.job_options()
_NAMES = frozenset(name for row in _TABLE for name in (row["name"], *row["aliases"]))


class SharedOptions:
    """Options as attributes, by their names. A framework's JobOptions say which it is and what it adds."""

    FRAMEWORK: ClassVar[str]
    EXTRAS: ClassVar[dict[str, Any]]  # keywords that only Python has, with their defaults

    def __init__(self, **given: Any) -> None:
        self.settings = _core.JobSettings()
        for name, value in self.EXTRAS.items():
            setattr(self, name, value)
        known = {row["name"]: row["aliases"] for row in _TABLE if row[self.FRAMEWORK]}
        taken = {*self.EXTRAS, *known, *(alias for aliases in known.values() for alias in aliases)}
        for name, value in given.items():
            if name not in taken:
                near = difflib.get_close_matches(name, [*known, *self.EXTRAS], 1)
                hint = f"; did you mean {near[0]}?" if near else f"; permitted: {', '.join([*known, *self.EXTRAS])}"
                raise TypeError(f"a job has no option '{name}'{hint}")
            if value is not None or name in self.EXTRAS:  # None: the default
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:  # what is no attribute of the object itself
        if name not in _NAMES:
            raise AttributeError(f"a job has no option '{name}'")
        value = self.settings.get(name)
        self.__dict__[name] = value  # steps ask for some, and the table is long
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NAMES:
            self.settings.set(name, value)
            for known in _NAMES & self.__dict__.keys():  # by this name or an alias
                del self.__dict__[known]
        else:
            super().__setattr__(name, value)

    def validate(self) -> None:
        """Raises ValueError naming the option, the value and what is permitted."""
        self.settings.validate(self.FRAMEWORK)

    @property
    def asynchronous(self) -> bool:
        return self.sync in ("asp", "ssp")

    @property
    def bound(self) -> int | None:
        """Iterations that a worker may be ahead of the slowest; None: any number."""
        return int(self.staleness) if self.sync == "ssp" else None
