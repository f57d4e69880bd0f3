"""Numbers and names in C99: exact, and the same for every compiler."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
"""C types by dtype. A truth value is a byte, whatever a compiler's own bool is."""

_WIDTH = 96
_VALUES_AT_ONCE = 1 << 16
"""The number of values that are Python objects at a time: each takes ten times its own bytes."""


def float_text(value: float, dtype: str) -> str:
    """Return a literal of exactly this value."""
    suffix = ""
    if dtype == "float32":
        suffix, (value,) = "f", struct.unpack("<f", struct.pack("<f", value))
    if math.isnan(value):
        return "NAN" if suffix else "(double)NAN"
    if math.isinf(value):
        word = "INFINITY" if suffix else "(double)INFINITY"
        return word if value > 0 else f"-{word}"
    if value == int(value) and abs(value) < 1 << 20:
        sign = "-" if math.copysign(1.0, value) < 0 else ""
        return f"{sign}{abs(int(value))}.0{suffix}"
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}{suffix}"


def integer_text(value: int, dtype: str) -> str:
    if dtype == "int64":
        return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"
    if dtype == "uint64":
        return f"UINT64_C({value})"
    if dtype == "uint32":
        return f"{value}u"
    return "INT32_MIN" if value == -(1 << 31) else str(value)


def _values(flat: Array) -> Iterator[Any]:
    for start in range(0, flat.size, _VALUES_AT_ONCE):
        yield from flat[start : start + _VALUES_AT_ONCE].tolist()


def values_text(array: Array) -> Iterator[str]:
    """Yield the lines between the braces of an initialiser."""
    dtype = str(array.dtype)
    is_float = dtype.startswith("float")
    line = "   "
    for value in _values(array.reshape(-1)):
        word = float_text(value, dtype) if is_float else integer_text(int(value), dtype)
        if len(line) + len(word) + 2 > _WIDTH:
            yield line
            line = "   "
        line += f" {word},"
    yield line
