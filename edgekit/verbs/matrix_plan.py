"""What a matrix measures, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.events import Events
from edgekit.building.request import BuildRequest
from edgekit.devices.base import BenchPlan
from edgekit.devices.device import Device
from edgekit.profiles.board import Board

if TYPE_CHECKING:
    from edgekit.bundle.samples import InputFile
    from edgekit.verbs.evaluation.evaluate import EvaluationPlan

Search = Callable[[BuildRequest, Device, Events], BuildRequest]
"""A search on a device; it returns the request with what was found."""


@dataclass(frozen=True)
class MatrixPlan:
    """What a matrix measures, how long, and where its reports go."""

    boards: Sequence[str | Board]
    offloads: Sequence[str]
    out: Path
    bench: BenchPlan
    search: Search
    """The search before the build of a tuned column."""
    search_seconds: float
    """The duration of that search."""
    twin: bool = False
    """Whether emulated devices are used, whose numbers are not those of hardware."""
    again: bool = False
    """Whether to measure again what an equal earlier session finished."""
    evaluation: EvaluationPlan | None = None
    """The data set that each cell is evaluated on."""
    beside: Sequence[str] = ()
    """The runtimes that are timed on the same machine, in alternating rounds with the bundles."""
    calibration: Sequence[InputFile] = ()
    """Samples for a column in int8; none are noise, of which only sizes and times hold."""
