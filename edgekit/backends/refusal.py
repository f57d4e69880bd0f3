"""The exception with which a rule or a match refuses operators."""

from __future__ import annotations


class Refused(Exception):
    """Raised with the reason why the library does not take the operators that matched."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
