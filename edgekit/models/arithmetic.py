"""Elementwise arithmetic for which Relax has no operator, or only a less exact one.

All importers use it. Each function takes the block builder that receives its loop nests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from edgekit.compiler.passes.indices import DIVIDES

op = relax.op


def truncated_division(block: Any, first: Any, second: Any) -> Any:
    """Return the quotient of whole numbers, rounded towards zero."""
    return _emitted(block, "div", tirx.truncdiv, first, second)


def floored_division(block: Any, first: Any, second: Any) -> Any:
    """Return the quotient of whole numbers, rounded down."""
    return _emitted(block, "floordiv", tirx.floordiv, first, second)


def truncated_remainder(block: Any, first: Any, second: Any) -> Any:
    """Return the remainder with the sign of `first`; exact for floats, too."""
    dtype = str(first.ty.dtype)
    if not dtype.startswith("float"):
        return _emitted(block, "mod", tirx.truncmod, first, second)
    name = "fmod" if dtype == "float64" else "fmodf"
    return _emitted(
        block, "fmod", lambda x, y: tirx.call_pure_extern(dtype, name, x, y), first, second
    )


def math_function(block: Any, name: str, value: Any) -> Any:
    """Return what C's mathematical function of that name gives for each float, exactly as libm."""
    dtype = str(value.ty.dtype)
    called = name if dtype == "float64" else f"{name}f"
    return block.emit_te(
        lambda a: te.compute(
            a.shape, lambda *index: tirx.call_pure_extern(dtype, called, a(*index))
        ),
        value,
        primfunc_name_hint=name,
    )


def arc_tangent(block: Any, first: Any, second: Any) -> Any:
    """Return the angle of the point with the ordinate `first`, for floats of 32 bits."""
    return _emitted(
        block,
        "atan2",
        lambda x, y: tirx.call_pure_extern("float32", "atan2f", x, y),
        first,
        second,
    )


def floored_remainder(block: Any, first: Any, second: Any) -> Any:
    """Return the remainder with the sign of `second`."""
    dtype = str(first.ty.dtype)
    if not dtype.startswith("float"):
        return _emitted(block, "mod", tirx.floormod, first, second)
    zero = relax.const(0, dtype)
    rest = truncated_remainder(block, first, second)
    differs = op.logical_xor(op.less(rest, zero), op.less(second, zero))
    wrong = op.logical_and(differs, op.not_equal(rest, zero))
    return block.emit(op.where(wrong, op.add(rest, second), rest))


def shifted(block: Any, value: Any, amount: Any, *, left: bool) -> Any:
    """Shift whole numbers. A negative shift, or one by the type's width or more, leaves only the
    sign; the processor would wrap around."""
    dtype = str(value.ty.dtype)
    bits = np.dtype(dtype).itemsize * 8
    has_sign = not dtype.startswith("uint")
    zero = relax.const(0, dtype)
    inside = op.less(amount, relax.const(bits, dtype))
    if has_sign:
        inside = op.logical_and(inside, op.greater_equal(amount, zero))
    inside = block.emit(inside)
    shift = op.left_shift if left else op.right_shift
    moved = shift(value, op.where(inside, amount, zero))
    rest = op.right_shift(value, relax.const(bits - 1, dtype)) if has_sign and not left else zero
    return block.emit(op.where(inside, moved, rest))


def _emitted(
    block: Any, name: str, function: Callable[[Any, Any], Any], first: Any, second: Any
) -> Any:
    is_whole = not str(first.ty.dtype).startswith("float")
    return block.emit_te(
        lambda a, b: _elementwise(function, a, b),
        first,
        second,
        primfunc_name_hint=name,
        primfunc_attrs={DIVIDES: True} if is_whole else None,
    )


def _elementwise(
    function: Callable[[Any, Any], Any], first: te.Tensor, second: te.Tensor
) -> te.Tensor:
    """Apply a binary function with numpy's broadcasting."""
    rank = max(len(first.shape), len(second.shape))
    shapes = [
        [1] * (rank - len(t.shape)) + [int(extent) for extent in t.shape] for t in (first, second)
    ]
    output = [b if a == 1 else a for a, b in zip(*shapes, strict=True)]

    def pick(tensor: te.Tensor, shape: list[int], index: tuple[Any, ...]) -> Any:
        own = index[rank - len(tensor.shape) :]
        own_shape = shape[rank - len(tensor.shape) :]
        return tensor(*(0 if e == 1 else i for i, e in zip(own, own_shape, strict=True)))

    return te.compute(
        output,
        lambda *index: function(pick(first, shapes[0], index), pick(second, shapes[1], index)),
    )
