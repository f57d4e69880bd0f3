"""edgekit export: generate a C++ application from a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import size
from edgekit.cli.console import Console
from edgekit.cli.options import Command, bundle_argument, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.verbs.export.application import ExportResult


@click.command("export", cls=Command)
@bundle_argument
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to write.  [default: build/MODEL-model-BOARD-app]",
)
@click.option("--zip", "archive", is_flag=True, help="Write DIR.zip as well.")
@json_option
@pass_console
def command(console: Console, bundle: Path, out: Path | None, archive: bool) -> None:
    """Generate an application from BUNDLE: C++ source, CMake files, a systemd unit.

    The folder holds all that is needed to compile and run, and what calls the model from C, Python,
    Rust and Go.
    """
    from edgekit.bundle.folder import open_bundle
    from edgekit.verbs.export.application import default_destination, export

    opened = open_bundle(bundle)
    result = export(
        opened,
        out or default_destination(opened, console.workspace.data.start),
        archive=archive,
        folder=console.workspace.data.folder,
        events=console.events,
    )
    console.report(result, lambda: _render(console, result))


def _render(console: Console, result: ExportResult) -> None:
    console.heading(f"{result.program} for {result.board}")
    pairs = [
        ("folder", str(result.path)),
        ("the model", f"{size(result.model)}; it needs no runtime"),
        ("wrappers", ", ".join(f"{name} {size(own)}" for name, own in result.wrappers.items())),
        ("in total", f"{size(result.total)}: the model and its wrappers"),
        ("compiler", f"{result.toolchain}, through CMake" if result.toolchain else "none"),
        ("next", f"{result.path / 'README.md'} has the commands"),
    ]
    if result.archive is not None:
        pairs.insert(1, ("archive", str(result.archive)))
    console.fields(pairs)
