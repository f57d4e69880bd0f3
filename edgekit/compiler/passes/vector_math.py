"""Functions such as exp, sin and pow in single precision, in vector instructions.

LLVM calls the C library for these, one element after another. In this module each is a polynomial
or two, right to a few units of the last place, with the same infinities, zeros and NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from edgekit.compiler.llvm_functions import (
    Functions,
    like,
    llvm_type,
    on_bodies_with_functions,
    scalar,
)
from edgekit.compiler.llvm_lines import Lines, Value

_HALVES = ("float16", "bfloat16")


def vector_math() -> Any:
    """Return the pass that runs before TVM makes calls of the C library."""
    return on_bodies_with_functions("VectorMath", _in_vectors)


def _in_vectors(body: Any, functions: Functions) -> Any:
    return tvm_ffi.structural_map(body, [(ir.Call, partial(_computed, functions))])


def _computed(functions: Functions, call: Any) -> Any:
    name = str(getattr(call.op, "name", "")).removeprefix("tirx.")
    dtype = str(call.ty)
    if name not in FORMULAS or scalar(dtype) not in ("float32", *_HALVES):
        return call
    wide = like(dtype, "float32")
    operands = [each if wide == dtype else tirx.Cast(wide, each) for each in call.args]
    lines = Lines()
    values = [Value(lines, wide, f"%{place}") for place in range(len(operands))]
    if name in _OF_ANGLES:
        _leave_far_angles(lines, values[0], _OF_ANGLES[name])
    result = FORMULAS[name](*values)
    texts = [*lines.texts, f"ret {llvm_type(wide)} {result.text}"]
    for declaration in lines.declarations.values():
        functions.declare(declaration)
    found = functions.call(name, wide, texts, *operands)
    return found if wide == dtype else tirx.Cast(dtype, found)


_LOG2_E = math.log2(math.e)
_LN2 = math.log(2)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LOG10_E = math.log10(math.e)
_LOG10_2_HIGH, _LOG10_2_LOW = 0.30078125, 2.48745663981195e-4
_EXP_LOW, _EXP_HIGH = -104.0, 89.5
"""The arguments beyond which single precision has only zero and infinity, also of half of e^x."""
_EXP = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
_TANH = (
    *(-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2),
    *(1.33314422036e-1, -3.33332819422e-1),
)
_TANH_SMALL = 0.625
_ERF_LARGE = 4.0
_ERF_ABOVE = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_ERF_BELOW = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
    *(-7.37332916720468e-03, -1.42647390514189e-02),
)
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_ASIN = (*(4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1),)
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_SINH = (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)
_LEAST_NORMAL, _TO_NORMAL = 1.1754943508222875e-38, 23
"""The least number with all its digits, and the power of two that gives them to smaller ones."""
_ROOT_OF_HALF = 0x3F3504F3
"""The bits of the square root of a half: mantissas run from it to twice as much."""
_ROUNDS = 1.5 * 2.0**23
"""A number that leaves no room for the digits behind the point of what is added to it."""


def _exponential(x: Value, halvings: int = 0) -> Value:
    """Compute 2^n * e^r, where r is at most half of ln 2. 2^n is made of the bits of n, in two
    factors, since one would end before the denormals begin."""
    clipped = _clipped(x, _EXP_LOW, _EXP_HIGH)
    shifted = clipped * _LOG2_E + _ROUNDS
    n = shifted - _ROUNDS
    r = clipped - n * _LN2_HIGH - n * _LN2_LOW
    whole = shifted.bits - shifted.number(_ROUNDS).bits - halvings
    half = whole >> 1
    value = _polynomial(_EXP, r) * r * r + r + 1.0
    scaled = value * _power_of_two(half) * _power_of_two(whole - half)
    return x.is_nan().chosen(x, scaled)


def _power_of_two(exponent: Value) -> Value:
    return ((exponent + 127) << 23).as_float


def _sigmoid(x: Value) -> Value:
    return 1.0 / (_exponential(_negative(x)) + 1.0)


def _hyperbolic_tangent(x: Value) -> Value:
    """Compute tanh, with a polynomial where e^2x - 1 would lose digits."""
    size, square = x.size, x * x
    small = _polynomial(_TANH, square) * square * size + size
    large = 1.0 - 2.0 / (_exponential(size + size) + 1.0)
    return _with_sign((size < _TANH_SMALL).chosen(small, large), x)


def _error_function(x: Value) -> Value:
    y = _clipped(x, -_ERF_LARGE, _ERF_LARGE)
    return y * _polynomial(_ERF_ABOVE, y * y) / _polynomial(_ERF_BELOW, y * y)


def _hyperbolic_sine(x: Value) -> Value:
    """Compute sinh, with a polynomial where a difference of powers would lose digits."""
    size, square = x.size, x * x
    small = _polynomial(_SINH, square) * square * size + size
    half = _exponential(size, halvings=1)
    return _with_sign((size < 1.0).chosen(small, half - 0.25 / half), x)


def _hyperbolic_cosine(x: Value) -> Value:
    half = _exponential(x.size, halvings=1)
    return half + 0.25 / half


def _logarithm(
    x: Value, factor: float = 1.0, high: float = _LN2_HIGH, low: float = _LN2_LOW
) -> Value:
    """Compute the logarithm of the mantissa, times a factor, and add the exponent's, which is
    `high + low` for each power of two."""
    is_denormal = x < _LEAST_NORMAL
    bits = is_denormal.chosen(x * 2.0**_TO_NORMAL, x).bits
    exponent = (bits - _ROOT_OF_HALF) >> 23
    f = (bits - (exponent << 23)).as_float - 1.0
    shifted = exponent - is_denormal.chosen(exponent.number(_TO_NORMAL), 0)
    n = (shifted + x.number(_ROUNDS).bits).as_float - _ROUNDS
    square = f * f
    tail = _polynomial(_LOG, f) * square * f - square * 0.5
    if factor == 1.0:
        found = n * low + tail + f + n * high
    else:
        found = n * low + tail * factor + f * factor + n * high
    nothing = x.equals(0.0).chosen(x.number(-math.inf), math.nan)
    return (x > 0.0).chosen((x < math.inf).chosen(found, x), nothing)


def _logarithm_from_one(x: Value) -> Value:
    """Compute log(1 + x), and add what the sum has lost."""
    total = x + 1.0
    lost = (x - (total - 1.0)) / total
    near = _logarithm(total)
    found = (x > -1.0).chosen((x < math.inf).chosen(near + lost, x), near)
    return total.equals(1.0).chosen(x, found)


def _area_sine(x: Value) -> Value:
    """Compute asinh as log(1 + u); where squares would overflow, as log(2 |x|)."""
    size = x.size
    square = size * size
    near = size + square / ((square + 1.0).root() + 1.0)
    is_large = size > _LARGE
    found = _logarithm_from_one(is_large.chosen(size, near))
    return _with_sign(found + is_large.chosen(x.number(_LN2), 0.0), x)


def _area_cosine(x: Value) -> Value:
    above = x - 1.0
    near = above + (above * 2.0 + above * above).root()
    is_large = x > _LARGE
    found = _logarithm_from_one(is_large.chosen(x, near))
    found = found + is_large.chosen(x.number(_LN2), 0.0)
    return (x < 1.0).chosen(x.number(math.nan), found)


def _area_tangent(x: Value) -> Value:
    size = x.size
    return _with_sign(_logarithm_from_one((size + size) / (1.0 - size)) * 0.5, x)


_LARGE = 1e8
"""A number whose square has all its digits before those of 1."""


def _arc_of_sine(x: Value) -> tuple[Value, Value, Value]:
    """Return the arc sine of |x| up to a half, or of sqrt((1 - |x|) / 2); that argument's size; and
    whether |x| is above a half."""
    size = x.size
    is_large = size > 0.5
    square = is_large.chosen((1.0 - size) * 0.5, size * size)
    argument = is_large.chosen(square.root(), size)
    return _polynomial(_ASIN, square) * square * argument + argument, size, is_large


def _arc_sine(x: Value) -> Value:
    arc, _, is_large = _arc_of_sine(x)
    return _with_sign(is_large.chosen(math.pi / 2 - (arc + arc), arc), x)


def _arc_cosine(x: Value) -> Value:
    arc, _, is_large = _arc_of_sine(x)
    twice = arc + arc
    far = (x < 0.0).chosen(math.pi - twice, twice)
    return is_large.chosen(far, math.pi / 2 - _with_sign(arc, x))


def _arc_tangent(x: Value) -> Value:
    size = x.size
    is_mid, is_large = size > math.tan(math.pi / 8), size > math.tan(3 * math.pi / 8)
    above = is_large.chosen(x.number(-1.0), is_mid.chosen(size - 1.0, size))
    below = is_large.chosen(size, is_mid.chosen(size + 1.0, 1.0))
    start = is_large.chosen(x.number(math.pi / 2), is_mid.chosen(x.number(math.pi / 4), 0.0))
    t = above / below
    square = t * t
    return _with_sign(start + (_polynomial(_ATAN, square) * square * t + t), x)


_FARTHEST = 2.0**20
"""The largest angle for which two parts of pi / 2 in double precision leave all digits."""
_ROUNDS_WIDE = 1.5 * 2.0**52
_QUARTER_HIGH = float.fromhex("0x1.921fb5p+0")
"""The first digits of pi / 2, whose product with a number of quarters is exact."""
_QUARTER_LOW = float.fromhex("0x1.110b4611a6263p-26")


def _leave_far_angles(lines: Lines, x: Value, library: Sequence[str]) -> None:
    """Leave to the C library all angles of a vector where one is too far, or no number."""
    far = x.size.is_not_within(_FARTHEST)
    any_far = far if far.dtype == "bool" else lines.call("vector.reduce.or", "bool", far)
    lines.texts += [f"br i1 {any_far.text}, label %far, label %near", "far:"]
    above, *below = (lines.call(name, x.dtype, x) for name in library)
    found = above / below[0] if below else above
    lines.texts += [f"ret {llvm_type(x.dtype)} {found.text}", "near:"]


def _in_quarter(x: Value, quarters: int = 0) -> tuple[Value, Value, Value]:
    """Return the sine and cosine of an angle's rest in its quarter of a turn, and the number of
    that quarter, with `quarters` added."""
    wide = x.size.converted("float64", "fpext")
    shifted = wide * (2 / math.pi) + _ROUNDS_WIDE
    n = shifted - _ROUNDS_WIDE
    r = (wide - n * _QUARTER_HIGH - n * _QUARTER_LOW).converted("float32", "fptrunc")
    square = r * r
    sine = _polynomial(_SIN, square) * square * r + r
    cosine = _polynomial(_COS, square) * square * square - square * 0.5 + 1.0
    return sine, cosine, shifted.bits.converted("int32", "trunc") + quarters


def _of_turn(x: Value, quarters: int) -> tuple[Value, Value]:
    sine, cosine, quarter = _in_quarter(x, quarters)
    found = (quarter & 1).equals(0).chosen(sine, cosine)
    return found, (quarter << 30) & -(2**31)


def _sine(x: Value) -> Value:
    found, sign = _of_turn(x, 0)
    return (found.bits ^ sign ^ x.sign).as_float


def _cosine(x: Value) -> Value:
    found, sign = _of_turn(x, 1)
    return (found.bits ^ sign).as_float


def _tangent(x: Value) -> Value:
    sine, cosine, quarter = _in_quarter(x)
    is_even = (quarter & 1).equals(0)
    found = is_even.chosen(sine, _negative(cosine)) / is_even.chosen(cosine, sine)
    return (found.bits ^ x.sign).as_float


_WIDE_ROOT_OF_HALF = 0x3FE6A09E667F3BCD
_WIDE_BIAS_BITS = 0x4338000000000000
"""The bits of `_ROUNDS_WIDE`."""
_FAR_EXPONENT = 200.0
"""A power of two beyond single precision."""


def _power(x: Value, y: Value) -> Value:
    """Compute 2^(y * log2 |x|) in double precision, whose digits reach for every exponent."""
    size = x.size.converted("float64", "fpext")
    bits = size.bits
    exponent = (bits - _WIDE_ROOT_OF_HALF) >> 52
    mantissa = (bits - (exponent << 52)).as_float
    n = (exponent + _WIDE_BIAS_BITS).as_float - _ROUNDS_WIDE
    s = (mantissa - 1.0) / (mantissa + 1.0)
    series = _polynomial([2 * _LOG2_E / odd for odd in range(15, 0, -2)], s * s)
    known = (size > 0.0).chosen((size < math.inf).chosen(n + series * s, size), -math.inf)
    logarithm = size.is_nan().chosen(size, known)
    result = _clipped(y.converted("float64", "fpext") * logarithm, -_FAR_EXPONENT, _FAR_EXPONENT)
    shifted = result + _ROUNDS_WIDE
    rest = result - (shifted - _ROUNDS_WIDE)
    root = _polynomial([_LN2**k / math.factorial(k) for k in range(9, -1, -1)], rest)
    found = (root.bits + (shifted.bits << 52)).as_float
    found = result.is_nan().chosen(result, found).converted("float32", "fptrunc")
    return _as_a_power(x, y, found)


def _as_a_power(x: Value, y: Value, found: Value) -> Value:
    """Return |x|^y as C defines the power of x."""
    size, even = y.size, _whole(y * 0.5)
    is_whole = _whole(y)
    one = x.number(1.0)
    sign = is_whole.chosen(even.chosen(x.bits ^ x.bits, x.sign), 0)
    found = (found.bits ^ sign).as_float
    without = is_whole.chosen(found, (x > -math.inf).chosen(x.number(math.nan), found))
    found = (x < 0.0).chosen(without, found)
    found = x.equals(-1.0).chosen(size.equals(math.inf).chosen(one, found), found)
    return x.equals(1.0).chosen(one, y.equals(0.0).chosen(one, found))


def _whole(y: Value) -> Value:
    """Tell whether it is a whole number; all large ones are, and infinity."""
    size = y.size
    rounded = size + 2.0**23 - 2.0**23
    return (size < 2.0**23).chosen(rounded, size).equals(size)


FORMULAS: dict[str, Callable[..., Value]] = {
    "exp": _exponential,
    "sigmoid": _sigmoid,
    "tanh": _hyperbolic_tangent,
    "erf": _error_function,
    "sinh": _hyperbolic_sine,
    "cosh": _hyperbolic_cosine,
    "log": _logarithm,
    "log2": partial(_logarithm, factor=_LOG2_E, high=1.0, low=0.0),
    "log10": partial(_logarithm, factor=_LOG10_E, high=_LOG10_2_HIGH, low=_LOG10_2_LOW),
    "log1p": _logarithm_from_one,
    "asinh": _area_sine,
    "acosh": _area_cosine,
    "atanh": _area_tangent,
    "asin": _arc_sine,
    "acos": _arc_cosine,
    "atan": _arc_tangent,
    "sin": _sine,
    "cos": _cosine,
    "tan": _tangent,
    "pow": _power,
}
"""The functions of TIR that are formulas here."""

_OF_ANGLES = {"sin": ("sin",), "cos": ("cos",), "tan": ("sin", "cos")}
"""The functions of angles, and LLVM's functions whose quotient they are."""


def _clipped(x: Value, low: float, high: float) -> Value:
    """Clamp x. NaN stays: no comparison with it is true."""
    return (x < low).chosen(x.number(low), (x > high).chosen(x.number(high), x))


def _negative(x: Value) -> Value:
    return (x.bits ^ -(2**31)).as_float


def _with_sign(size: Value, x: Value) -> Value:
    """Give a positive number the sign of x."""
    return (size.bits | x.sign).as_float


def _polynomial(coefficients: Sequence[float], x: Value) -> Value:
    first, *rest = coefficients
    value: Value | float = first
    for coefficient in rest:
        value = x * value + coefficient if isinstance(value, float) else value * x + coefficient
    assert isinstance(value, Value)
    return value
