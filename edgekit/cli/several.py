"""Runs a command on several devices at once: a row each, and an error if some failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from edgekit.base.wording import duration
from edgekit.cli.console import Console
from edgekit.verbs.fleet import Outcome, on_each, raise_if_any_failed

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device

T = TypeVar("T")


@dataclass(frozen=True)
class SeveralReport(Generic[T]):
    """One bundle on several devices."""

    bundle: Path
    devices: tuple[Outcome[T], ...]


@dataclass(frozen=True)
class Columns(Generic[T]):
    """The columns of the table between the result and the duration."""

    names: tuple[str, ...]
    cells: Callable[[T], Sequence[object]]
    well: str
    """The word for a result without failure."""


def on_several(
    console: Console,
    bundle: Bundle,
    candidates: Sequence[Candidate],
    work: Callable[[Device, Events], T],
    columns: Columns[T],
) -> None:
    """Run the work on all devices at once and print a table; raise an error if some failed."""
    outcomes = on_each(candidates, work, console.events)

    def render() -> None:
        well = sum(outcome.error is None for outcome in outcomes)
        name = bundle.manifest.model.name
        console.heading(f"{name}: {columns.well} on {well} of {len(outcomes)} devices")
        console.table(
            ("device", "result", *columns.names, "took"),
            [_row(outcome, columns) for outcome in outcomes],
            right=(*columns.names, "took"),
        )

    console.report(SeveralReport(bundle.path, outcomes), render)
    raise_if_any_failed(outcomes)


def _row(outcome: Outcome[T], columns: Columns[T]) -> list[object]:
    took = duration(outcome.seconds)
    if outcome.report is None:
        return [outcome.device, "FAILED", *(None for _ in columns.names), took]
    return [outcome.device, columns.well, *columns.cells(outcome.report), took]
