"""What `edgekit recommend` says, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.advice.summary import ModelSummary
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.board import Board

Kind = Literal["kernels", "tuned", "library", "int8"]


@dataclass(frozen=True)
class Known:
    """The best that was measured of an option, on whichever device of the board."""

    median: float
    unit: str
    device: str
    measured_at: str
    run: str


@dataclass(frozen=True)
class Answers:
    """To what somebody asks who has offloaded before."""

    supported: str
    """Does the library take it?"""
    faster: str
    """Is it faster, by how much, measured where?"""
    hot_spot: str
    """Does it matter: is that where the work is?"""


@dataclass(frozen=True)
class Option:
    name: str
    kind: Kind
    supported: bool
    command: str
    """What tries it; empty where nothing does."""
    answers: Answers
    reasons: tuple[str, ...] = ()
    """What else speaks for it or against it."""
    coverage: float | None = None
    """The share of the multiply-accumulates that the library takes; None where nobody asks."""
    regions: int | None = None
    known: Known | None = None

    @property
    def offload(self) -> tuple[str, ...]:
        return (self.name,) if self.kind == "library" else ()


@dataclass(frozen=True)
class Subject:
    """What is asked about: a model that can be built."""

    source: ModelSource
    model: Model
    summary: ModelSummary
    store: str | None = None
    """Where measurements are, if not at the usual place."""


@dataclass(frozen=True)
class HotSpot:
    """The kind of operator with the most multiply-accumulates."""

    operator: str
    share: float


@dataclass(frozen=True)
class Advice:
    """For one board, the option to try first in front."""

    board: str
    title: str
    fits: bool
    fits_in_int8: bool
    """As far as a quarter of the memory goes."""
    memory: str
    """What the model needs beside what there is, in a sentence."""
    options: tuple[Option, ...]
    verdict: str


@dataclass(frozen=True)
class Recommendation:
    model: str
    sha256: str
    macs: int | None
    parameter_bytes: int
    hot_spot: HotSpot | None
    """None where nothing multiplies, or nobody knows how often."""
    obstacle: str | None
    """Why it can't be built at all; then there is no advice."""
    boards: tuple[Advice, ...]


@dataclass(frozen=True)
class Considered:
    """A board with its options, before they are in order."""

    board: Board
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Search:
    """For faster kernels, on the device that is measured on."""

    seconds: float
    again: bool = False
    """Whether among kernels that were measured before, too."""
