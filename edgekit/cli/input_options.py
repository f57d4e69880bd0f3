"""Options of the commands that run a bundle: inputs and the timeout."""

from __future__ import annotations

from typing import Any

import click

from edgekit.base.shapes import Shape
from edgekit.cli.options import Decorator, grouped, parse_shape_option

input_option: Decorator = click.option(
    "--input",
    "-i",
    "input_texts",
    multiple=True,
    metavar="[NAME=]FILE",
    help="A .npy, .npz, .png or .jpg, a folder of them, or a quoted pattern. May be repeated.",
)
"""An option that adds `input_texts: tuple[str, ...]`."""

nonfinite_option: Decorator = click.option(
    "--allow-nonfinite", is_flag=True, help="Accept NaN and infinity in inputs."
)
"""An option that adds `allow_nonfinite: bool`."""

timeout_option: Decorator = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    metavar="SECONDS",
    help="Give up if the device is silent for this long.  [default: 600]",
)
"""An option that adds `timeout: float`."""


def _sizes(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[dict[str, Shape]]:
    """Group shapes: one for a name that was given already begins the next group."""
    groups: list[dict[str, Shape]] = []
    for text in texts:
        name, shape = parse_shape_option(text, "at")
        if not groups or name in groups[-1]:
            groups.append({})
        groups[-1][name] = shape
    return groups


at_option: Decorator = click.option(
    "--at",
    "sizes",
    multiple=True,
    metavar="NAME=1x64",
    callback=_sizes,
    help="Measure at this size of an input whose sizes vary, and not at the largest. For an input "
    "that was named before, measure at this size too.",
)
"""An option that adds `sizes: list[dict[str, Shape]]`."""


def _input_keywords(input_texts: tuple[str, ...], allow_nonfinite: bool) -> Any:
    return {"inputs": input_texts or None, "allow_nonfinite": allow_nonfinite}


input_options = grouped("given", _input_keywords, input_option, nonfinite_option)
"""Options that add `given`: the inputs and whether they may hold NaN."""
