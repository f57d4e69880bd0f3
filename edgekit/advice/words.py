"""The data of `edgekit recommend`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.advice.summary import ModelSummary
from edgekit.base.measurer import Measurer, figure
from edgekit.base.report import Report
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.board import Board

Kind = Literal["kernels", "tuned", "library", "int8"]


@dataclass(frozen=True)
class BestRun:
    """The best measurement of an option on a device of the board."""

    median: float
    unit: str
    measured_by: Measurer | None
    """None if the run's record does not say."""
    device: str
    measured_at: str
    run: str

    @property
    def ranks(self) -> bool:
        """Whether it says how fast the board is: only what hardware measured does."""
        return self.measured_by == "hardware"

    @property
    def in_words(self) -> str:
        return figure(self.median, self.unit, self.measured_by)


@dataclass(frozen=True)
class Answers:
    """The answers to the three questions about an option."""

    supported: str
    """Whether the library takes the model."""
    faster: str
    """Whether it is faster, by how much, measured on which device."""
    hot_spot: str
    """Whether most of the work is in the part it takes."""


@dataclass(frozen=True)
class Option:
    name: str
    kind: Kind
    supported: bool
    command: str
    """The command that tries the option; empty if none does."""
    answers: Answers
    reasons: tuple[str, ...] = ()
    """Further reasons for or against it."""
    coverage: float | None = None
    """The share of the multiply-accumulates that a library takes."""
    regions: int | None = None
    known: BestRun | None = None

    @property
    def offload(self) -> tuple[str, ...]:
        return (self.name,) if self.kind == "library" else ()


@dataclass(frozen=True)
class Subject:
    """The model to give advice about."""

    source: ModelSource
    model: Model
    summary: ModelSummary
    store: str | None = None
    """The URL of the store, if not the default."""


@dataclass(frozen=True)
class HotSpot:
    """The kind of operator with the most multiply-accumulates."""

    operator: str
    share: float


@dataclass(frozen=True)
class Advice:
    """The advice for one board; the first option is the one to try first."""

    board: str
    title: str
    fits: bool
    fits_in_int8: bool
    """Whether a quarter of the needs fits."""
    memory: str
    """The memory that the model needs and the board has, in words."""
    options: tuple[Option, ...]
    verdict: str


@dataclass(frozen=True)
class Recommendation(Report):
    model: str
    sha256: str
    macs: int | None
    parameter_bytes: int
    hot_spot: HotSpot | None
    """The hot spot; None without known multiply-accumulates."""
    obstacle: str | None
    """The reason why the model can't be built; then there is no advice."""
    boards: tuple[Advice, ...]

    def headline(self) -> str:
        if self.obstacle is not None:
            return f"{self.model} can't be built: {self.obstacle}"
        return "; ".join(f"{advice.board}: {advice.verdict}" for advice in self.boards)


@dataclass(frozen=True)
class Considered:
    """A board with its options in no order."""

    board: Board
    options: tuple[Option, ...]


@dataclass(frozen=True)
class SearchPlan:
    """A search for faster kernels on the measured device."""

    seconds: float
    again: bool = False
    """Whether to measure known kernels again."""
