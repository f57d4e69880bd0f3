"""edgekit trust: trust what the files of a project make edgekit run or send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from edgekit.base.consent import TrustedFile
from edgekit.base.errors import UsageError
from edgekit.cli.ask import can_ask, confirmed
from edgekit.cli.console import Console
from edgekit.cli.options import Command, json_option, pass_console


@dataclass(frozen=True)
class TrustDocument:
    folder: Path
    files: tuple[TrustedFile, ...]


@click.command("trust", cls=Command)
@click.argument(
    "folder",
    metavar="[DIR]",
    required=False,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option("--show", "only_show", is_flag=True, help="Show what the files do; change nothing.")
@click.option("--revoke", is_flag=True, help="Stop trusting the files.")
@json_option
@pass_console
def command(console: Console, folder: Path | None, only_show: bool, revoke: bool) -> None:
    """Trust the files of the project in DIR, or in this folder, as they are now.

    These are edgekit.toml and the profiles in boards/ and toolchains/. edgekit then uses their
    programs, flags, hosts and URLs. If one of these changes, it asks again.
    """
    from edgekit.base.trust import project_files, trust
    from edgekit.base.trust import revoke as forget

    if only_show and revoke:
        raise UsageError("--show changes nothing, and --revoke does", hint="leave one of them out")
    place = console.workspace.data.folder if folder is None else folder.absolute()
    files = project_files(place)
    if revoke:
        forget(files)
    elif not only_show:
        trust(files)
    document = TrustDocument(place, project_files(place))
    console.report(document, lambda: _render(console, document))


def ask_person(console: Console, files: Sequence[TrustedFile]) -> bool:
    """Show what the files of a project do and ask for consent. False without a terminal."""
    if not can_ask(console):
        return False
    lines = ["This project is not trusted yet. Its files make edgekit do this:"]
    for file in files:
        lines += [f"  {file.path}", *(f"    {effect}" for effect in file.effects)]
    return confirmed(console, lines, "Trust these files, as they are now?")


def _render(console: Console, document: TrustDocument) -> None:
    files = [file for file in document.files if file.effects]
    if not files:
        console.print("no file of this project makes edgekit run or send anything")
    for file in files:
        console.print(f"{'trusted' if file.trusted else 'not trusted'}: {file.path}")
        for effect in file.effects:
            console.print(f"  {effect}")
