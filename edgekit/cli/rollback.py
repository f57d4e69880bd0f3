"""edgekit rollback: return to an earlier version of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import beside, figure
from edgekit.base.wording import duration
from edgekit.cli.console import Console
from edgekit.cli.device_options import remote_options_with_timeout
from edgekit.cli.options import Command, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.verbs.rollback import RollbackReport

_FEWEST_CHARACTERS = 4


def _digest(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    word = text.lower()
    if set(word) - set("0123456789abcdef") or not _FEWEST_CHARACTERS <= len(word) <= 64:
        raise UsageError(
            f"--to {text} is not the beginning of a version's digest",
            hint=f"give {_FEWEST_CHARACTERS} characters or more of one that `edgekit versions` "
            "lists",
        )
    return word


@click.command("rollback", cls=Command)
@click.argument("model", metavar="[MODEL-NAME]", required=False)
@remote_options_with_timeout
@click.option(
    "--to",
    metavar="DIGEST",
    callback=_digest,
    help="The version to return to, by the first characters of its digest.",
)
@json_option
@pass_console
def command(
    console: Console,
    model: str | None,
    where: Any,
    to: str | None,
) -> None:
    """Roll back to the previous version of a model on a device.

    Its hashes are checked and it is run once. If either fails, nothing changes.
    """
    report = console.workspace.rollback(model, to=to, **where)
    console.report(report, lambda: _render(console, report))


def _render(console: Console, report: RollbackReport) -> None:
    from edgekit.devices.linux.version_records import SHOWN_DIGEST

    record = report.version.record
    console.heading(f"{record.model} on {report.device} is back at {record.digest[:SHOWN_DIGEST]}")
    measured_by, median, tried = report.measured_by, None, None
    if record.median is not None:
        median = figure(record.median, "seconds", measured_by)
    if report.seconds is not None:
        tried = beside("on zeros: " + duration(report.seconds), measured_by)
    console.fields(
        [
            ("deployed", record.deployed),
            ("built with", f"edgekit {record.edgekit} for {record.board}"),
            ("verified then", record.verified),
            ("median latency then", median),
            ("ran now", tried),
            ("current until now", report.before and report.before[:SHOWN_DIGEST]),
        ]
    )
