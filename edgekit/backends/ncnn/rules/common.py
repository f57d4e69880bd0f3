"""Helpers that rules of every family share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.backends.base import Refused
from edgekit.backends.ncnn.layout import Shape, held
from edgekit.backends.rule_tools import OUT, integers, number, per_channel, positive, scalar

if TYPE_CHECKING:
    from edgekit.backends.match import Match

__all__ = [
    "OUT",
    "held_shape",
    "integers",
    "number",
    "per_channel",
    "positive",
    "require_batch_of_one",
    "scalar",
]


def held_shape(match: Match, part: str) -> Shape:
    """Return a float32 tensor's shape in ncnn."""
    match.require_float32(part)
    return held(match.shape(part))


def require_batch_of_one(shape: Sequence[int]) -> None:
    if not shape or shape[0] != 1:
        raise Refused(f"its batch is {shape[0] if shape else 'missing'}, and ncnn's is always 1")
