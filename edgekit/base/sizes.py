"""Memory sizes as people write them ("320 KiB", "4 GiB") and as programs count them (bytes)."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s?(B|KiB|MiB|GiB|TiB)")

SIZE_EXPECTED = 'a size such as "320 KiB", "1 MiB" or "4 GiB"'


def parse_size(text: str) -> int:
    """Bytes; ValueError for anything that is not a whole number of them with a unit."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {SIZE_EXPECTED}")
    size = Fraction(match[1]) * _UNITS[match[2]]
    if size.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def format_size(size: int) -> str:
    """The shortest exact spelling in the largest unit: 327680 is "320 KiB"."""
    for unit, factor in reversed(_UNITS.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
