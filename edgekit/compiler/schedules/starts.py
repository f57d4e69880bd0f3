"""A largest number starts from minus infinity, which TVM's schedules do not know.

Its partial sums need the number that a reduction starts from, and take the lowest finite one for a
maximum. So that one stands in a kernel's place of infinity while the kernel is scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx

_LARGEST: Mapping[str, float] = {
    dtype: float(tirx.max_value(dtype).value) for dtype in ("float16", "float32", "float64")
}


def finite_starts(function: Any) -> Any | None:
    """Return the kernel with the largest finite numbers in place of infinities; None if it has
    none, or such numbers already."""
    found = {"infinite": False, "finite": False}

    def look(number: Any) -> None:
        value = abs(float(number.value))
        found["infinite"] |= value == math.inf
        found["finite"] |= value == _LARGEST.get(str(number.ty))

    tvm_ffi.structural_walk(function.body, (tirx.FloatImm, look))
    return _put(function, math.inf, None) if found["infinite"] and not found["finite"] else None


def infinite_starts(function: Any) -> Any:
    """Undo it."""
    return _put(function, None, math.inf)


def _put(function: Any, old: float | None, new: float | None) -> Any:
    """Replace a number and its negative; None stands for the largest finite one of each type."""

    def put(number: Any) -> Any:
        dtype, value = str(number.ty), float(number.value)
        largest = _LARGEST.get(dtype)
        if largest is None or abs(value) != (largest if old is None else old):
            return number
        return tirx.const(math.copysign(largest if new is None else new, value), dtype)

    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.FloatImm, put)]))
