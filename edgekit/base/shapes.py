"""Reads shapes as a user gives them: `1x3x224x224`, `1,3,224,224`, `1x(1..512)`, `1x(n:1..512)`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from edgekit.base.tensors import Range
from edgekit.base.wording import counted

Shape: TypeAlias = tuple[int | Range, ...]
"""The dimensions of an input, each with its size or its range of sizes."""

LARGEST_RANK = 16
_DIGITS = 12
_BETWEEN = re.compile(r"[x,](?![^(]*\))")
"""What separates two dimensions: a comma or x, outside of parentheses."""
_RANGE = re.compile(r"(?:([A-Za-z_]\w*)\s*:)?\s*([0-9]+)\s*\.\.\s*([0-9]+)", re.ASCII)
_SIZE = re.compile(r"[0-9]+", re.ASCII)
_NOT_A_SHAPE = "is not a list of positive whole numbers, or of ranges such as (1..512)"

EXPECTED = f"a list of 1 to {LARGEST_RANK} positive whole numbers or ranges such as (1..512)"


class ShapeError(ValueError):
    """A text that is no shape. The message is the rest of a sentence that begins with the text."""


def read_shape(given: str | Iterable[object]) -> Shape:
    """Read a text, or a list of numbers, of `Range` and of their texts; ShapeError if it is none.

    A range of one size is that size.
    """
    parts = _BETWEEN.split(given) if isinstance(given, str) else list(given)
    shape = tuple(_extent(part) for part in parts)
    if len(shape) > LARGEST_RANK:
        raise ShapeError(f"has {counted(len(shape), 'dimension')}, and at most {LARGEST_RANK} fit")
    return shape


def largest(shape: Shape) -> tuple[int, ...]:
    """Return the shape with each dimension at its largest size."""
    return tuple(one.largest if isinstance(one, Range) else one for one in shape)


def has_range(shape: Shape) -> bool:
    return any(isinstance(one, Range) for one in shape)


def shape_text(shape: Shape) -> str:
    """Write a shape as `read_shape` reads it."""
    return "x".join(map(str, shape))


def _extent(part: object) -> int | Range:
    if isinstance(part, Range):
        return _checked(part)
    if isinstance(part, str):
        text = part.strip()
        inside = text[1:-1].strip() if text[:1] + text[-1:] == "()" else text
        if found := _RANGE.fullmatch(inside):
            name, low, high = found.groups()
            return _checked(Range(_number(low), _number(high), name or ""))
        return _size(text)
    if not isinstance(part, (bool, float)) and hasattr(part, "__index__"):
        return _size(str(int(part)))
    raise ShapeError(_NOT_A_SHAPE)


def _size(digits: str) -> int:
    size = _number(digits)
    if size < 1:
        raise ShapeError(_NOT_A_SHAPE)
    return size


def _number(digits: str) -> int:
    if not _SIZE.fullmatch(digits) or len(digits) > _DIGITS:
        raise ShapeError(_NOT_A_SHAPE)
    return int(digits)


def _checked(found: Range) -> int | Range:
    if found.smallest > found.largest:
        raise ShapeError(f"has the range {found}, whose smallest size is above its largest")
    if found.smallest < 1:
        raise ShapeError(f"has the range {found}, and a dimension has at least one element")
    return found.smallest if found.smallest == found.largest else found
