"""edgekit logs: show what happened on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from edgekit.base.measurer import Measurer, beside
from edgekit.base.wording import duration
from edgekit.cli.console import Console
from edgekit.cli.device_options import remote_device_options
from edgekit.cli.options import Command, json_option, pass_console
from edgekit.devices.linux.device_log import LogEntry

_MOST_LINES = 10_000


@dataclass(frozen=True)
class LogReport:
    device: str
    measured_by: Measurer
    entries: tuple[LogEntry, ...]


@click.command("logs", cls=Command)
@remote_device_options
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0, _MOST_LINES),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the latest N entries.",
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Show new entries until Ctrl-C. With --json, one document per line.",
)
@json_option
@pass_console
def command(
    console: Console,
    where: Any,
    lines: int,
    follow: bool,
) -> None:
    """Show what happened on a device: deployments, rollbacks, runs and how they ended."""
    device = console.workspace.reached(**where).log_keeper()
    measured_by = device.ask_measurer()
    if follow:
        device.read_log(lines, follow=lambda entry: _show(console, entry, measured_by))
        return
    report = LogReport(device.name, measured_by, device.read_log(lines))
    console.report(report, lambda: _render(console, report))


def _show(console: Console, entry: LogEntry, measured_by: Measurer) -> None:
    if console.as_json:
        console.json_line(entry)
    else:
        _render_entry(console, entry, measured_by)


def _render(console: Console, report: LogReport) -> None:
    if not report.entries:
        console.print(f"the log of {report.device} is empty")
    for entry in report.entries:
        _render_entry(console, entry, report.measured_by)


def _render_entry(console: Console, entry: LogEntry, measured_by: Measurer) -> None:
    from edgekit.devices.linux.version_records import SHOWN_DIGEST

    words = [
        entry.time or f"{entry.clock or 'unknown'} (device's clock)",
        f"{entry.event}: FAILED" if entry.failed else entry.event,
        entry.model,
        entry.digest and entry.digest[:SHOWN_DIGEST],
        None if entry.seconds is None else beside(duration(entry.seconds), measured_by),
        entry.message,
        entry.by and f"({entry.by})",
    ]
    console.print("  ".join(word for word in words if word))
    for line in entry.last_lines:
        console.print(f"    {line}")
