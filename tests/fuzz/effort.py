"""How much each parser is tried: for a time, or a number of times."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """A time for each target, or a number of tries, which wins."""

    seconds: float
    tries: int | None = None

    def is_spent(self, tried: int, until: float) -> bool:
        """Tell whether a target was tried enough."""
        return time.monotonic() >= until if self.tries is None else tried >= self.tries
