"""What the process of LoadGen and its parent tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Scenario = Literal["SingleStream", "Offline"]
Mode = Literal["performance", "accuracy"]


@dataclass(frozen=True)
class Test:
    """One test of LoadGen's."""

    scenario: Scenario
    mode: Mode
    benchmark: str
    """The name by which LoadGen looks up MLPerf's rules."""
    rules: Path
    """The file user.conf."""
    samples: int
    in_memory: int
    """The samples that a performance test uses."""
    logs: Path
    """The folder for the logs."""
    prefix: str
    """The beginning of the logs' names."""


@dataclass(frozen=True)
class Load:
    """The request to hold samples in memory, and no others."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Query:
    """The request to run samples. Each has an answer of its own, in their order."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Ended:
    """The message that the logs are written."""

    version: str
