"""Options that change a model as its file has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

reshape_option: _Decorator = click.option(
    "--reshape", is_flag=True, help="Let --shape override shapes that the model fixes."
)
"""An option that adds `reshape: bool`."""

ends_option: _Decorator = click.option(
    "--ends",
    type=click.Choice(["float", "int8"]),
    help="With int8, an input or output that the model only converts between float and int8 "
    "is int8.",
)
"""An option that adds `ends: str`."""
