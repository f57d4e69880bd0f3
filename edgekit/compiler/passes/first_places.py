"""Argmax and argmin of values that all are the lowest, or the highest, of their type.

TVM begins with that value at place -1, and of two equal values keeps the lower place: in a row of
zeros in uint8, or of minus infinity, the largest value is at -1. All values are equal then, and the
first place is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import te, tirx, topi


def first_places() -> Mapping[str, Callable[[Any, Any], Any]]:
    """Return operators for LegalizeOps, each with the function that makes its loop nest."""
    return {
        "relax.argmax": lambda block, call: _place(block, call, topi.argmax),
        "relax.argmin": lambda block, call: _place(block, call, topi.argmin),
    }


def _place(block: Any, call: Any, best: Callable[..., Any]) -> Any:
    def place(value: Any) -> Any:
        found = best(value, call.attrs.axis, bool(call.attrs.keepdims))
        first = tirx.const(0, found.dtype)
        return te.compute(found.shape, lambda *index: te.max(first, found(*index)))

    return block.call_te(place, call.args[0], primfunc_name_hint=best.__name__)
