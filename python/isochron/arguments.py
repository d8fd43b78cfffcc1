"""What the command lines of this package have in common."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """Tells an option that it does not know which is near."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [name for name in self._option_string_actions if name.startswith("--")]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
            hint = f"did you mean {near[0]}?" if near else f"permitted: {', '.join(known)}"
            self.error(f"unknown option '{unknown[0]}'; {hint}")
        return options
