"""How a rule declines operators: below what a backend is, so that a match can refuse as well."""

from __future__ import annotations


class Refused(Exception):
    """The operators that matched are not for this library, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
