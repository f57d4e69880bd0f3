"""edgekit keys: make and list the keys that sign bundles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from edgekit.cli.console import Console
from edgekit.cli.options import Group, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.registry.keys import KeyEntry


@dataclass(frozen=True)
class KeysReport:
    keys: tuple[KeyEntry, ...]


@click.group("keys", cls=Group)
def command() -> None:
    """Make and list the keys that sign bundles in registries."""


@command.command("new")
@click.argument("name")
@json_option
@pass_console
def new(console: Console, name: str) -> None:
    """Make an Ed25519 key: a private file, and a public one for those who verify."""
    from edgekit.registry.keys import new_key

    key = new_key(name)

    def render() -> None:
        console.heading(f"key {key.name} ({key.id})")
        console.fields([("signs", key.file.with_suffix(".key")), ("verifies", key.file)])

    console.report(key, render)


@command.command("list")
@json_option
@pass_console
def list_command(console: Console) -> None:
    """List the keys of this user."""
    from edgekit.registry.keys import list_keys

    report = KeysReport(list_keys())

    def render() -> None:
        if not report.keys:
            console.print("there is no key; `edgekit keys new NAME` makes one")
            return
        rows = [(key.name, key.id, key.signs, key.file) for key in report.keys]
        console.table(("name", "id", "signs", "public key"), rows)

    console.report(report, render)
