"""edgekit versions: list what was deployed to a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from edgekit.base.measurer import Measurer, figure
from edgekit.cli.console import Console
from edgekit.cli.device_options import remote_device_options
from edgekit.cli.options import Command, json_option, pass_console
from edgekit.devices.linux.version_records import Version


@dataclass(frozen=True)
class VersionsReport:
    device: str
    measured_by: Measurer
    versions: tuple[Version, ...]


@click.command("versions", cls=Command)
@click.argument("model", metavar="[MODEL-NAME]", required=False)
@remote_device_options
@json_option
@pass_console
def command(
    console: Console,
    model: str | None,
    where: Any,
) -> None:
    """List the versions of models that are deployed to a device."""
    from edgekit.devices.linux.version_records import choose_model

    device = console.workspace.reached(**where)
    keeper = device.version_keeper()
    versions = keeper.versions()
    if model is not None:
        wanted = choose_model(versions, model, device.name)
        versions = tuple(version for version in versions if version.record.model == wanted)
    report = VersionsReport(device.name, keeper.ask_measurer(), versions)
    console.report(report, lambda: _render(console, report))


def _render(console: Console, report: VersionsReport) -> None:
    if not report.versions:
        console.print(f"nothing was deployed to {report.device}")
        return
    console.table(
        ("model", "version", "", "deployed", "by", "verified", "latency"),
        [_row(version, report.measured_by) for version in report.versions],
        right=("latency",),
    )


def _row(version: Version, measured_by: Measurer) -> list[object]:
    from edgekit.devices.linux.version_records import SHOWN_DIGEST

    record = version.record
    mark = "current" if version.current else ""
    return [
        record.model,
        record.digest[:SHOWN_DIGEST],
        mark if version.there else "files are gone",
        record.deployed,
        f"edgekit {record.edgekit}",
        record.verified,
        None if record.median is None else figure(record.median, "seconds", measured_by),
    ]
