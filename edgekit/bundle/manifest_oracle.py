"""The manifest's entry for the oracle that computed the expected outputs."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING_PROVEN = "none: nothing is proven"
"""The oracle in reports of a bundle without expected outputs."""


@dataclass(frozen=True)
class OracleEntry:
    """An independent runtime."""

    name: str
    version: str


def oracle_in_words(oracle: OracleEntry | None) -> str:
    return NOTHING_PROVEN if oracle is None else f"by {oracle.name} {oracle.version}"
