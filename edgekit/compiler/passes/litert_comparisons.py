"""Compare quantised tensors as LiteRT does: in whole 256ths of a real number.

Two stored values that mean different numbers may therefore be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from edgekit.compiler.passes.fixed_point import Multiply, fixed_point, multiply_by
from edgekit.compiler.rewriting import operator_of

_LEFT_SHIFT = 8
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.equal": tirx.EQ,
    "relax.not_equal": tirx.NE,
    "relax.less": tirx.LT,
    "relax.less_equal": tirx.LE,
    "relax.greater": tirx.GT,
    "relax.greater_equal": tirx.GE,
}


def is_comparison(call: Any) -> bool:
    return operator_of(call) in _COMPARISONS


def comparing(
    call: Any, steps: Sequence[tuple[float, int]], by: Multiply
) -> Callable[[Any, Any], Any]:
    """Return a function that compares two stored values as `call` does; `steps` are their scales
    and zero points."""

    def element(*values: Any) -> Any:
        return _COMPARISONS[operator_of(call)](
            *(_in_256ths(value, *step, by) for value, step in zip(values, steps, strict=True))
        )

    return element


def _in_256ths(value: Any, scale: float, zero_point: int, by: Multiply) -> Any:
    wide = (value.astype("int32") - zero_point) * (1 << _LEFT_SHIFT)
    return multiply_by(wide, fixed_point(scale), by)
