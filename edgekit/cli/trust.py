"""edgekit trust: trust what the files of a project, or a model, make edgekit run or send."""

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
    "place",
    metavar="[DIR|MODEL]",
    required=False,
    type=click.Path(path_type=Path, exists=True),
)
@click.option("--show", "only_show", is_flag=True, help="Show what the files do; change nothing.")
@click.option("--revoke", is_flag=True, help="Stop trusting the files.")
@json_option
@pass_console
def command(console: Console, place: Path | None, only_show: bool, revoke: bool) -> None:
    """Trust the files of the project in DIR, or in this folder, as they are now.

    These are edgekit.toml and the profiles in boards/ and toolchains/. edgekit then uses their
    programs, flags, hosts and URLs. If one of these changes, it asks again.

    With a MODEL in TorchScript, Keras or SavedModel, trust that file: loading it runs its code.
    """
    from edgekit.base.trust import revoke as forget
    from edgekit.base.trust import trust

    if only_show and revoke:
        raise UsageError("--show changes nothing, and --revoke does", hint="leave one of them out")
    named = console.workspace.data.folder if place is None else place.absolute()
    files = _files(named)
    if revoke:
        forget(files)
    elif not only_show:
        trust(files)
    document = TrustDocument(named, _files(named))
    console.report(document, lambda: _render(console, document))


def _files(place: Path) -> tuple[TrustedFile, ...]:
    """Return a model that runs code, or the files of the project in a folder."""
    from edgekit.base.paths import place_of
    from edgekit.base.trust import is_trusted, project_files
    from edgekit.models.foreign_formats import model_effects

    effects = model_effects(place)
    if place.is_dir() and not effects:
        return project_files(place)
    return (TrustedFile(place_of(place), effects, is_trusted(place, effects)),)


def ask_person(console: Console, files: Sequence[TrustedFile]) -> bool:
    """Show what files do and ask for consent. False without a terminal."""
    if not can_ask(console):
        return False
    lines = ["These files are not trusted yet. They make edgekit do this:"]
    for file in files:
        lines += [f"  {file.path}", *(f"    {effect}" for effect in file.effects)]
    return confirmed(console, lines, "Trust these files, as they are now?")


def _render(console: Console, document: TrustDocument) -> None:
    files = [file for file in document.files if file.effects]
    if not files:
        console.print(f"nothing in {document.folder} makes edgekit run or send anything")
    for file in files:
        console.print(f"{'trusted' if file.trusted else 'not trusted'}: {file.path}")
        for effect in file.effects:
            console.print(f"  {effect}")
