"""Options of the commands that run a bundle: inputs and the timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.samples import Sample

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

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
    show_default=True,
    metavar="SECONDS",
    help="Give up after this long without a response.",
)
"""An option that adds `timeout: float`."""


@dataclass(frozen=True)
class ChosenSamples:
    count: int
    samples: Iterator[Sample] | None
    """The samples; None for the bundle's own reference input."""


def choose_samples(
    bundle: Bundle, input_texts: tuple[str, ...], allow_nonfinite: bool
) -> ChosenSamples:
    """Return the user's files as samples, or the reference input if none are given."""
    if not input_texts:
        return ChosenSamples(1, None)
    from edgekit.bundle.samples import count_samples, iterate_samples, parse_input_argument

    files = [parse_input_argument(text) for text in input_texts]
    entries = bundle.manifest.inputs
    return ChosenSamples(
        count_samples(files, entries),
        iterate_samples(files, entries, allow_nonfinite=allow_nonfinite),
    )
