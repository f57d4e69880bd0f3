"""Sums, products, tables, and conversions between floats and stored values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.aot.c_text import float_text
from edgekit.aot.kernel import Constant, Kernel
from edgekit.aot.kernels_portable import rescaling
from edgekit.aot.kernels_portable.rescaling import Expression
from edgekit.aot.kernels_portable.text import INT8, MAKER, loop, plus, with_source
from edgekit.aot.operators import Add, Dequantize, Lookup, Multiply, Operand, Quantize
from edgekit.aot.program import Step

_NAMES = ("left", "right")


@dataclass(frozen=True)
class _Axis:
    """An axis of a broadcast: how far each side moves with every index."""

    extent: int
    left: int
    right: int


def pair(step: Step, operator: Add | Multiply) -> Kernel:
    sides = (operator.left, operator.right)
    axes = _axes(operator.shape, *(side.shape for side in sides))
    values = [f"{name}[{_place(axes, name)}]" for name in _NAMES]
    result = _sum(operator, *values) if isinstance(operator, Add) else _product(operator, *values)
    lines = [f"*output++ = {result.text};"]
    for place, axis in reversed(list(enumerate(axes))):
        lines = loop(f"i{place}", axis.extent, lines)
    inputs = [(INT8, name) for name, side in zip(_NAMES, sides, strict=True) if not _fixed(side)]
    constants = []
    for name, side in zip(_NAMES, sides, strict=True):
        if side.constant is not None:
            constants.append(Constant(name, side.constant))
            lines = [f"const int8_t *{name} = {step.name}_{name};", *lines]
    elements = math.prod(operator.shape)
    places = [side for side in sides if not _fixed(side)]
    shared = tuple(
        (place, 0) for place, side in enumerate(places) if math.prod(side.shape) == elements
    )
    if len(places) == 2 and len(shared) < 2:
        shared = ()
    word = "product" if isinstance(operator, Multiply) else "sum"
    if isinstance(operator, Add) and operator.negate_right:
        word = "difference"
    return with_source(
        step,
        f"{word} of {elements} stored values",
        lines,
        Kernel(MAKER, "", constants=tuple(constants), helpers=result.helpers, in_place=shared),
        inputs=inputs,
    )


def _fixed(side: Operand) -> bool:
    return side.constant is not None


def _sum(operator: Add, left: str, right: str) -> Expression:
    first = _raised(operator, operator.left, left)
    second = _raised(operator, operator.right, right)
    sign = "-" if operator.negate_right else "+"
    total = f"({first.text} {sign} {second.text})"
    result = rescaling.stored(total, operator.rescale, 1 << (operator.left_shift + 9))
    return Expression(result.text, (*first.helpers, *second.helpers, *result.helpers))


def _raised(operator: Add, side: Operand, value: str) -> Expression:
    """Return a side on the common scale, with bits below the point."""
    shifted = f"({value}{plus(-side.zero_point)})"
    factor, shift = side.factor, operator.left_shift
    right = 1 - factor.shift
    if factor.multiplier == 1 << 30 and 0 <= right <= shift:
        return Expression(f"{shifted} * {1 << (shift - right)}", ())
    return rescaling.scaled(f"({shifted} * {1 << shift})", factor, 1 << (shift + 8))


def _product(operator: Multiply, left: str, right: str) -> Expression:
    factors = [
        f"({value}{plus(-side.zero_point)})"
        for value, side in ((left, operator.left), (right, operator.right))
    ]
    return rescaling.stored(f"({' * '.join(factors)})", operator.rescale, 1 << 16)


def _axes(shape: tuple[int, ...], *sides: tuple[int, ...]) -> list[_Axis]:
    """Return the loops of a broadcast, joining those that run through both sides without a gap."""
    strides = []
    for side in sides:
        wide = (1,) * (len(shape) - len(side)) + side
        own = [math.prod(wide[axis + 1 :]) if wide[axis] > 1 else 0 for axis in range(len(shape))]
        strides.append(own)
    axes: list[_Axis] = []
    for extent, left, right in zip(shape, *strides, strict=True):
        if extent == 1:
            continue
        if axes and (axes[-1].left, axes[-1].right) == (left * extent, right * extent):
            axes[-1] = _Axis(axes[-1].extent * extent, left, right)
        else:
            axes.append(_Axis(extent, left, right))
    return axes or [_Axis(1, 0, 0)]


def _place(axes: list[_Axis], side: str) -> str:
    terms = []
    for place, axis in enumerate(axes):
        stride = axis.left if side == "left" else axis.right
        if stride:
            terms.append(f"i{place}" if stride == 1 else f"i{place} * {stride}")
    return " + ".join(terms) or "0"


def lookup(step: Step, operator: Lookup) -> Kernel:
    table = np.roll(np.array(operator.table, "int8"), 128)
    body = loop("i", operator.elements, [f"output[i] = {step.name}_table[(uint8_t)input[i]];"])
    comment = f"{operator.function} by a table, which begins with the result for 0"
    return with_source(
        step,
        comment,
        body,
        Kernel(MAKER, "", constants=(Constant("table", table, alignment=1),), in_place=((0, 0),)),
    )


QUANTIZE = """\
/* To the nearest whole number, ties away from zero, where `low` and `high` are far out. */
static inline int32_t ek_round(float value, float low, float high)
{
    const float bounded = value > low ? (value < high ? value : high) : low;
    const int32_t whole = (int32_t)bounded;
    const float rest = bounded - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}
"""


def quantize(step: Step, operator: Quantize) -> Kernel:
    scale = float_text(float(np.float32(operator.scale)), "float32")
    rounded = f"ek_round(input[i] / {scale}, -512.0f, 512.0f)"
    body = loop(
        "i",
        operator.elements,
        [f"output[i] = ek_clamp({rounded}{plus(operator.zero_point)}, -128, 127);"],
    )
    return with_source(
        step,
        "floats to stored values, which may take the floats' place",
        body,
        Kernel(MAKER, "", helpers=(QUANTIZE, rescaling.CLAMP), in_place=((0, 0),)),
        inputs=[("float", "input")],
    )


def dequantize(step: Step, operator: Dequantize) -> Kernel:
    scale = float_text(float(np.float32(operator.scale)), "float32")
    value = f"input[i]{plus(-operator.zero_point)}"
    body = loop("i", operator.elements, [f"output[i] = (float)({value}) * {scale};"])
    return with_source(
        step, "stored values to floats", body, Kernel(MAKER, ""), output=("float", "output")
    )
