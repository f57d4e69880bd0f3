"""Converts memory sizes between text ("320 KiB", "4 GiB") and bytes."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s?(B|KiB|MiB|GiB|TiB)")

SIZE_EXPECTED = 'a size such as "320 KiB", "1 MiB" or "4 GiB"'


def parse_size(text: str) -> int:
    """Return bytes; ValueError for anything but a whole number of bytes with a unit."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {SIZE_EXPECTED}")
    size = Fraction(match[1]) * _UNITS[match[2]]
    if size.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def format_size(size: int) -> str:
    """Return the shortest exact text in the largest unit: 327680 is "320 KiB"."""
    for unit, factor in reversed(_UNITS.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
