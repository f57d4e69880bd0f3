"""exp, tanh, sigmoid and erf in single precision, in vector instructions.

LLVM calls the C library for these, one element after another. In this module each is a polynomial
or two, right to a few parts in ten million, with the same infinities, zeros and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx

_LEVEL = 20
"""The priority of these rules; TVM's own have 10."""
_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP_LOW, _EXP_HIGH = -104.0, 88.8
"""The arguments beyond which single precision has only zero and infinity."""
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


@lru_cache(maxsize=1)
def use_vector_math() -> None:
    """Make LLVM use these functions in this process instead of calls of the C library.

    Call it once only: TVM refuses a second rule of the same level.
    """
    for name in _FORMULAS:
        tirx.register_intrin_lowering(name, "llvm", f=partial(_lowered, name), level=_LEVEL)


def _lowered(name: str, call: Any) -> Any:
    dtype = str(call.ty)
    (value,) = call.args
    if dtype.startswith("float32"):
        if _is_of_another(value):
            return _PLAIN[name](value)
        return bound(value, _FORMULAS[name])
    if dtype.startswith("float64"):
        return _PLAIN[name](value)
    wide = "float32" + dtype.lstrip("bfloat0123456789")
    return tirx.Cast(dtype, bound(tirx.Cast(wide, value), _FORMULAS[name]))


def _is_of_another(value: Any) -> bool:
    """Return whether the value contains one of these functions: TVM simplifies nested bindings
    several times each, and several nested functions never finish."""
    called: set[str] = set()
    tvm_ffi.structural_walk(
        value, (ir.Call, lambda call: called.add(str(getattr(call.op, "name", ""))))
    )
    return not called.isdisjoint(_FORMULAS)


def exponential(x: Any) -> Any:
    """Compute 2^n * e^r, where r is at most half of ln 2. 2^n is made of the bits of n, in two
    factors, since one would end before the denormals begin."""
    clipped = _clipped(x, _EXP_LOW, _EXP_HIGH)
    n = tirx.floor(clipped * _LOG2_E + 0.5)
    return bound(
        clipped - n * _LN2_HIGH - n * _LN2_LOW,
        lambda r: tirx.Select(x != x, x, _scaled(_polynomial(_EXP, r) * r * r + r + 1.0, n)),
    )


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + exponential(-x))


def hyperbolic_tangent(x: Any) -> Any:
    """Compute tanh, with a polynomial where e^2x - 1 would lose digits."""
    size = tirx.Select(x < 0.0, -x, x)
    small = _polynomial(_TANH, x * x) * (x * x) * x + x
    return bound(
        1.0 - 2.0 / (exponential(size + size) + 1.0),
        lambda large: tirx.Select(size < _TANH_SMALL, small, tirx.Select(x < 0.0, -large, large)),
    )


def error_function(x: Any) -> Any:
    y = _clipped(x, -_ERF_LARGE, _ERF_LARGE)
    return y * _polynomial(_ERF_ABOVE, y * y) / _polynomial(_ERF_BELOW, y * y)


_FORMULAS: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": exponential,
    "tirx.sigmoid": sigmoid,
    "tirx.tanh": hyperbolic_tangent,
    "tirx.erf": error_function,
}


def _plain_exponential(x: Any) -> Any:
    return tirx.call_llvm_pure_intrin(str(x.ty), "llvm.exp", x)


def _plain_tangent(x: Any) -> Any:
    """Compute tanh from the power of e that is below one."""
    falling, rising = _plain_exponential(-2.0 * x), _plain_exponential(2.0 * x)
    return tirx.Select(x >= 0.0, (1.0 - falling) / (1.0 + falling), (rising - 1.0) / (rising + 1.0))


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": _plain_exponential,
    "tirx.sigmoid": lambda x: 1.0 / (1.0 + _plain_exponential(-x)),
    "tirx.tanh": _plain_tangent,
    "tirx.erf": lambda x: (
        tirx.call_pure_extern("float64", "erf", x)
        if str(x.ty) == "float64"
        else bound(x, error_function)
    ),
}
"""TVM's own forms: slower, but they can be nested."""


def _scaled(value: Any, exponent: Any) -> Any:
    whole = tirx.Cast(str(exponent.ty).replace("float", "int"), exponent)
    half = whole >> 1
    return value * _power_of_two(half) * _power_of_two(whole - half)


def _power_of_two(exponent: Any) -> Any:
    return tirx.reinterpret(str(exponent.ty).replace("int", "float"), (exponent + 127) << 23)


def _clipped(x: Any, low: float, high: float) -> Any:
    """Clamp x. NaN stays: no comparison with it is true."""
    return tirx.Select(
        x < low,
        tirx.const(low, str(x.ty)),
        tirx.Select(x > high, tirx.const(high, str(x.ty)), x),
    )


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    first, second, *rest = coefficients
    value = x * first + second
    for coefficient in rest:
        value = value * x + coefficient
    return value


def bound(value: Any, formula: Callable[[Any], Any]) -> Any:
    """Return the formula of a value that is computed once."""
    variable = tirx.Var("v", str(value.ty))
    return tirx.Let(variable, value, formula(variable))
