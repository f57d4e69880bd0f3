"""Helpers that rules of every family share."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.backends.base import Refused
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import Shape, held


def held_shape(match: Match, part: str) -> Shape:
    """Return a float32 tensor's shape in ncnn."""
    match.require_float32(part)
    return held(match.shape(part))


def require_batch_of_one(shape: Sequence[int]) -> None:
    if not shape or shape[0] != 1:
        raise Refused(f"its batch is {shape[0] if shape else 'missing'}, and ncnn's is always 1")
