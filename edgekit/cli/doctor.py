"""edgekit doctor: check what this host needs to build for a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgekit.base.errors import MissingToolError
from edgekit.cli.console import Console
from edgekit.cli.options import Command, board_option, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.advice.doctor import Check, DoctorReport


@click.command("doctor", cls=Command)
@board_option
@json_option
@pass_console
def command(console: Console, board_name: str | None) -> None:
    """Show what this host needs to build for a board, and how to install what is missing.

    Without --board, check for the project's board, or for this host. Exit code 0 only if models
    can be built.
    """
    from edgekit.advice.doctor import examine

    workspace = console.workspace.data
    project = workspace.shown_project
    name = board_name or (project.board if project else None) or "local"
    report = examine(workspace.board(name), console.events)
    console.report(report, lambda: _render(console, report))
    if not report.ready:
        click.get_current_context().exit(MissingToolError.exit_code)


def _render(console: Console, report: DoctorReport) -> None:
    console.heading(f"To build for {report.board} with the toolchain {report.toolchain}:")
    _render_checks(console, [check for check in report.checks if check.required])
    console.print()
    console.heading("Good to have:")
    _render_checks(console, [check for check in report.checks if not check.required])
    console.print()
    missing = [check for check in report.checks if not check.ok]
    for check in missing:
        console.print(f"for {check.name}: {check.fix}")
    console.print(
        f"{report.board} can be built for"
        if report.ready
        else f"{report.board} cannot be built for: what is required is missing"
    )


def _render_checks(console: Console, checks: list[Check]) -> None:
    rows = [
        ("ok" if check.ok else "missing", check.name, check.expected, check.purpose, check.found)
        for check in checks
    ]
    console.table(("", "what", "needed", "in order to", "found"), rows)
