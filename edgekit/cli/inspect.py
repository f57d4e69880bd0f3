"""edgekit inspect: what is in a model, and whether it can be built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.options import (
    constant_option,
    json_option,
    model_argument,
    pass_console,
    shape_option,
)
from edgekit.console import Console

if TYPE_CHECKING:
    from edgekit.arrays import Array


@click.command("inspect")
@model_argument
@shape_option
@constant_option
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
) -> None:
    """Show what is in MODEL and whether it can be built."""
    from edgekit.model import open_model, scan_model

    assert model is not None
    source = open_model(model, shapes, constants)
    scan = scan_model(source)
    console.report(scan, lambda: console.fields([("parameters", scan.parameters)]))
