"""Options of the commands that run a bundle: inputs and the timeout."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli.options import Decorator, grouped

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


def _input_keywords(input_texts: tuple[str, ...], allow_nonfinite: bool) -> Any:
    return {"inputs": input_texts or None, "allow_nonfinite": allow_nonfinite}


input_options = grouped("given", _input_keywords, input_option, nonfinite_option)
"""Options that add `given`: the inputs and whether they may hold NaN."""
