"""Helpers that the rules of every backend share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.backends.base import Refused

if TYPE_CHECKING:
    from edgekit.backends.match import Match

OUT = "out"
"""The part name of the operator whose result later nodes read, the same in every rule."""


def scalar(match: Match, part: str) -> float:
    """Return a constant with one element as a number."""
    array = match.array(part)
    if array is None or array.size != 1:
        raise Refused(f"its {part} is not one number")
    return float(array.reshape(-1)[0])


def integers(values: Any) -> tuple[int, ...]:
    """Return the integers of an attribute or a tuple of numbers, in any form that Relax uses."""
    fields = getattr(values, "fields", getattr(values, "values", values))
    return tuple(int(getattr(value, "value", value)) for value in fields)


def number(value: Any) -> float:
    """Return a number among an operator's arguments."""
    return float(getattr(value, "value", value))


def positive(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis + rank if axis < 0 else axis for axis in axes)


def require_layout(attrs: Any, wanted: str) -> None:
    if str(attrs.layout) != wanted or str(attrs.out_layout) not in ("", wanted):
        raise Refused(f"its layout is {attrs.layout}")


def per_channel(match: Match, part: str, channels: int, behind: int) -> Any:
    """Return a constant with one number per channel, flat; `behind` axes follow the channels'."""
    import numpy as np

    array = match.weights(part)
    shape = array.shape
    place = len(shape) - 1 - behind
    if array.size == 1:
        return np.full(channels, array.reshape(-1)[0], np.float32)
    others = [extent for axis, extent in enumerate(shape) if axis != place]
    if place < 0 or shape[place] != channels or any(extent != 1 for extent in others):
        raise Refused(f"its {part} has the shape {list(shape)}, not one number a channel")
    return array.reshape(channels)


def output_channels_first(weight: Any, groups: int) -> Any:
    """Swap the input and output channels of a transposed convolution's weights, group by group:
    libraries want outputs first."""
    inputs, outputs, *kernel = weight.shape
    apart = weight.reshape(groups, inputs // groups, outputs, *kernel)
    return apart.swapaxes(1, 2).reshape(groups * outputs, inputs // groups, *kernel)
