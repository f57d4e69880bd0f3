"""The option that chooses the store."""

from __future__ import annotations

import click

from edgekit.cli.console import Console

store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.  "
    "[default: $EDGEKIT_STORE, the project's, or a file in your home]",
)
"""An option that adds `url: str | None`."""


def chosen_store(console: Console, url: str | None) -> str | None:
    from edgekit.project.file import choose_store

    return choose_store(console.workspace.project, url)
