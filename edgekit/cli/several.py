"""Runs a command on several devices at once: a row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from edgekit.base.wording import counted, duration
from edgekit.cli.console import Console
from edgekit.verbs.fleet import Outcome, on_each

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice, DeviceKeywords
    from edgekit.api.inputs import InputKeywords
    from edgekit.api.workspace import Workspace
    from edgekit.base.events import Events
    from edgekit.bundle.folder import Bundle
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


def device_name(on: DeviceKeywords) -> str:
    """Return the name of the one device that the work is on."""
    device = on["device"]
    assert device is not None
    return device if isinstance(device, str) else device.name


def on_several(
    console: Console,
    bundle: Path,
    where: DeviceChoice,
    given: InputKeywords,
    work: Callable[[Workspace, Bundle, DeviceKeywords], T],
    columns: Columns[T],
) -> tuple[Outcome[T], ...]:
    """Run the work on all devices at once, print a table, and return the outcomes."""
    from edgekit.api.choice import several_devices
    from edgekit.api.inputs import choose_samples

    ws = console.workspace
    opened = ws.setting.bundle(bundle)
    choose_samples(opened, **given)  # a mistake in them is no device's failure
    board = ws.data.board(opened.manifest.board.name)
    candidates = several_devices(ws.setting, board, where.names, where.timeout)

    def on_one(device: Device, voice: Events) -> T:
        return work(ws.hearing(voice), opened, {"device": device})

    outcomes = on_each(candidates, on_one, console.events)

    def render() -> None:
        well = sum(outcome.error is None for outcome in outcomes)
        name = opened.manifest.model.name
        console.heading(f"{name}: {columns.well} on {well} of {counted(len(outcomes), 'device')}")
        console.table(
            ("device", "result", *columns.names, "took"),
            [_row(outcome, columns) for outcome in outcomes],
            right=(*columns.names, "took"),
            spare=("took", *reversed(columns.names[2:])),
        )

    console.report(SeveralReport(opened.path, outcomes), render)
    return outcomes


def _row(outcome: Outcome[T], columns: Columns[T]) -> list[object]:
    took = duration(outcome.seconds)
    if outcome.report is None:
        return [outcome.device, "FAILED", *(None for _ in columns.names), took]
    return [outcome.device, columns.well, *columns.cells(outcome.report), took]
