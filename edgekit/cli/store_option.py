"""The option that chooses the store."""

from __future__ import annotations

from pathlib import Path

import click

store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.  "
    "[default: $EDGEKIT_STORE, the project's, or a file in your home]",
)
"""An option that adds `url: str | None`."""


def chosen_store(url: str | None) -> str | None:
    from edgekit.project.file import choose_store, find_project

    return choose_store(find_project(Path.cwd()), url)
