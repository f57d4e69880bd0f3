"""The option that chooses the store."""

from __future__ import annotations

import click

store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.  "
    "[default: $EDGEKIT_STORE, the project's, or a file in your home]",
)
"""An option that adds `url: str | None`."""
