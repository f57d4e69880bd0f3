"""edgekit report: write one page with all pictures of a bundle, a run or a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.build_options import deciding_options
from edgekit.cli.console import Console
from edgekit.cli.options import REPORTED, Command, json_option, pass_console, store_option

if TYPE_CHECKING:
    from edgekit.api.keywords import BuildKeywords


@click.command("report", cls=Command)
@click.argument("subject", metavar="BUNDLE|RESULT|MODEL", type=REPORTED)
@click.option(
    "--out",
    "-o",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page to write.  [default: NAME-report.html]",
)
@deciding_options
@store_option
@json_option
@pass_console
def command(
    console: Console, subject: str, output: Path | None, how: BuildKeywords, url: str | None
) -> None:
    """Write one page with all pictures of a bundle, a stored run or a model.

    RESULT is a run's id, a prefix of it, or `latest`. The page shows layers, timeline, latencies,
    roofline, memory, energy, tuning and history, as far as their data exist, and says which command
    makes the others. It is one file and reaches no network. The options of a build are for a MODEL.
    With --json, the data are printed, and the page is written if --out names it.
    """
    report = console.workspace.at_store(url).report(subject, **how)
    path = output or Path(f"{report.name}-report.html")
    if output is not None or not console.as_json:
        report.write(path)

    def render() -> None:
        for part in report.parts:
            if part.missing:
                console.events.note(f"{part.title}: {part.missing}")
        console.print(f"wrote {path}: open it in a browser")

    console.report(report, render)
