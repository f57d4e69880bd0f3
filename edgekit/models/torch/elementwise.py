"""PyTorch's elementwise operators, computed in the same types as in PyTorch.

TVM's importer has most of them, but not PyTorch's rules for mixed types: it adds an int8 tensor and
2.5 as if that were 2, ignores `alpha`, and divides whole numbers as whole numbers. So a table gives
for each operator PyTorch's promotion of the operands, and the computation in that type. PyTorch
itself determines the types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from tvm import relax

from edgekit.models import arithmetic
from edgekit.models.torch.promotion import (
    BOOL,
    EXACT,
    FLOAT,
    POWER,
    WIDE,
    Elementwise,
    Operands,
    as_type,
    computed,
    dtype_name,
    operator_name,
    options_of,
)

op = relax.op


def unary(kind: Any, function: Callable[[Any], Any]) -> Elementwise:
    return Elementwise(kind, 1, lambda given: function(given.values[0]))


def binary(kind: Any, function: Callable[[Any, Any], Any]) -> Elementwise:
    return Elementwise(kind, 2, lambda given: function(*given.values))


def _whole(function: Callable[[Any], Any]) -> Elementwise:
    """Round floats; integers stay as they are."""
    return Elementwise(
        EXACT, 1, lambda given: function(given.values[0]) if given.is_float else given.values[0]
    )


def _bits(function: Callable[[Any, Any], Any], of_booleans: Callable[[Any, Any], Any]) -> Any:
    return Elementwise(
        EXACT, 2, lambda given: (of_booleans if given.dtype == "bool" else function)(*given.values)
    )


def _logical(function: Callable[..., Any], operands: int) -> Elementwise:
    return Elementwise(
        BOOL, operands, lambda given: function(*(as_type(v, "bool") for v in given.values))
    )


def _absolute(value: Any) -> Any:
    return value if str(value.ty.dtype).startswith(("uint", "bool")) else op.abs(value)


def _sign(value: Any) -> Any:
    dtype = str(value.ty.dtype)
    if dtype == "bool":
        return value
    zero = relax.const(0, dtype)
    if dtype.startswith("uint"):
        return op.astype(op.greater(value, zero), dtype)
    positive, negative = (
        op.astype(compared(value, zero), dtype) for compared in (op.greater, op.less)
    )
    return op.subtract(positive, negative)  # 0 of NaN


def _signbit(value: Any) -> Any:
    dtype = str(value.ty.dtype)
    zero = relax.const(0, dtype)
    below = op.less(value, zero)
    if not dtype.startswith("float"):
        return below if not dtype.startswith(("uint", "bool")) else op.zeros_like(value, "bool")
    minus_zero = op.less(op.divide(relax.const(1, dtype), value), zero)
    return op.logical_or(below, op.logical_and(op.equal(value, zero), minus_zero))


def _not(value: Any) -> Any:
    return op.logical_not(value) if str(value.ty.dtype) == "bool" else op.bitwise_not(value)


def _is_finite(value: Any) -> Any:
    if not str(value.ty.dtype).startswith(("float", "bfloat")):
        return op.ones_like(value, "bool")
    return op.less(op.abs(value), relax.const(np.inf, str(value.ty.dtype)))


def _is_infinite(value: Any) -> Any:
    if not str(value.ty.dtype).startswith(("float", "bfloat")):
        return op.zeros_like(value, "bool")
    return op.equal(op.abs(value), relax.const(np.inf, str(value.ty.dtype)))


def _is_nan(value: Any) -> Any:
    if not str(value.ty.dtype).startswith(("float", "bfloat")):
        return op.zeros_like(value, "bool")
    return op.isnan(op.astype(value, "float32") if str(value.ty.dtype) == "bfloat16" else value)


def _expm1(value: Any) -> Any:
    """Compute exp(x) - 1 accurately near zero, where the direct form loses digits."""
    one, two = (relax.const(number, str(value.ty.dtype)) for number in (1, 2))
    exponential = op.exp(value)
    near = op.multiply(op.tanh(op.divide(value, two)), op.add(exponential, one))
    is_near = op.less(op.abs(value), one)
    return op.where(is_near, near, op.subtract(exponential, one))


def _log1p(value: Any) -> Any:
    """Compute log(1 + x) accurately near zero, correcting for the digits that 1 + x loses."""
    one = relax.const(1, str(value.ty.dtype))
    more = op.add(value, one)
    near = op.multiply(op.log(more), op.divide(value, op.subtract(more, one)))
    is_near = op.less(op.abs(value), relax.const(0.5, str(value.ty.dtype)))
    exact = op.where(op.equal(more, one), value, near)
    return op.where(is_near, exact, op.log(more))


def _logarithm(base: float) -> Callable[[Any], Any]:
    return lambda value: op.divide(op.log(value), relax.const(math.log(base), str(value.ty.dtype)))


def _round(given: Operands) -> Any:
    value, decimals = given.values[0], given.options.get("decimals", 0)
    if not given.is_float:
        return value
    if not decimals:
        return op.round(value)
    scale = given.number(10.0 ** abs(decimals))
    there, back = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return back(op.round(there(value, scale)), scale)


def _by_libm(name: str, given: Operands) -> Any:
    return arithmetic.math_function(given.block, name, given.values[0])


def _negative(given: Operands) -> Any:
    is_unsigned = given.dtype.startswith("uint")
    value = given.values[0]
    return op.subtract(given.number(0), value) if is_unsigned else op.negative(value)


def _relu(given: Operands) -> Any:
    value = given.values[0]
    return op.nn.relu(value) if given.is_float else op.maximum(value, given.number(0))


def _elu(given: Operands) -> Any:
    """Compute ELU, or SELU with a scale."""
    value = given.values[0]
    alpha, scale, input_scale = (
        float(given.options.get(name, 1)) for name in ("alpha", "scale", "input_scale")
    )
    curve = _expm1(value if input_scale == 1 else op.multiply(value, given.number(input_scale)))
    below = op.multiply(curve, given.number(alpha * scale))
    above = value if scale == 1 else op.multiply(value, given.number(scale))
    return op.where(op.greater(value, given.number(0)), above, below)


def _gelu(given: Operands) -> Any:
    is_tanh = given.options.get("approximate", "none") == "tanh"
    return (op.nn.gelu_tanh if is_tanh else op.nn.gelu)(given.values[0])


def _add(given: Operands) -> Any:
    first, second = _times_alpha(given)
    return (op.logical_or if given.dtype == "bool" else op.add)(first, second)


def _subtract(given: Operands) -> Any:
    return op.subtract(*_times_alpha(given))


def _times_alpha(given: Operands) -> tuple[Any, Any]:
    alpha = given.options.get("alpha", 1)
    first, second = given.values
    return first, second if alpha == 1 else op.multiply(second, given.number(alpha))


def _multiply(given: Operands) -> Any:
    return (op.logical_and if given.dtype == "bool" else op.multiply)(*given.values)


def _clamp(given: Operands) -> Any:
    value, low, high = (*given.values, None, None)[:3]
    numbers = (*given.given[1:], None, None)[:2]
    if given.is_float and all(n is None or isinstance(n, (int, float)) for n in numbers):
        least, most = numbers
        return op.clip(
            value,
            -math.inf if least is None else least,
            math.inf if most is None else most,
        )
    is_truth = given.dtype == "bool"
    if low is not None:
        value = (op.logical_or if is_truth else op.maximum)(value, low)
    if high is not None:
        value = (op.logical_and if is_truth else op.minimum)(value, high)
    return value


def _division(given: Operands) -> Any:
    mode = given.options.get("rounding_mode")
    first, second = given.values
    if mode == "trunc":
        if given.is_float:
            return op.trunc(op.divide(first, second))
        return arithmetic.truncated_division(given.block, first, second)
    return _floored(given)


def _floored(given: Operands) -> Any:
    """Divide floats as PyTorch does: from the exact remainder, so that 1.0 // 0.1 is 9."""
    first, second = given.values
    if not given.is_float:
        return arithmetic.floored_division(given.block, first, second)
    zero, half, one = (given.number(number) for number in (0, 0.5, 1))
    rest = arithmetic.truncated_remainder(given.block, first, second)
    quotient = op.divide(op.subtract(first, rest), second)
    differs = op.logical_xor(op.less(rest, zero), op.less(second, zero))
    goes_down = op.logical_and(op.not_equal(rest, zero), differs)
    quotient = given.block.emit(op.where(goes_down, op.subtract(quotient, one), quotient))
    down = given.block.emit(op.floor(quotient))
    is_above = op.greater(op.subtract(quotient, down), half)
    whole = op.where(is_above, op.add(down, one), down)
    return op.where(op.equal(second, zero), op.divide(first, second), whole)


def _remainder(given: Operands) -> Any:
    return arithmetic.floored_remainder(given.block, *given.values)


def _fmod(given: Operands) -> Any:
    return arithmetic.truncated_remainder(given.block, *given.values)


def _shift(*, left: bool) -> Elementwise:
    return Elementwise(
        EXACT, 2, lambda given: arithmetic.shifted(given.block, *given.values, left=left)
    )


def _power(given: Operands) -> Any:
    base, exponent = given.values
    number = given.given[1]
    if (
        isinstance(number, (int, float))
        and (found := _known_power(base, number, given)) is not None
    ):
        return found
    if given.is_float:
        return op.power(base, exponent)
    wide = (op.astype(value, "float64") for value in (base, exponent))
    return op.astype(op.trunc(op.power(*wide)), given.dtype)


def _known_power(base: Any, exponent: float, given: Operands) -> Any:
    """Return small powers as products, as PyTorch does; None for others."""
    if given.is_float and abs(exponent) == 0.5:
        return op.sqrt(base) if exponent > 0 else op.rsqrt(base)
    if exponent != int(exponent) or abs(exponent) > (3 if given.is_float else 64):
        return None
    if exponent < 0 and not given.is_float:
        return None
    result = given.number(1) if exponent == 0 else base
    for _ in range(1, abs(int(exponent))):
        result = op.multiply(result, base)
    if exponent == 0:
        return op.ones_like(base)
    return op.divide(given.number(1), result) if exponent < 0 else result


def _atan2(given: Operands) -> Any:
    return op.atan2(*given.values)


def _hypot(first: Any, second: Any) -> Any:
    dtype = str(first.ty.dtype)
    squares = (op.multiply(v, v) for v in (op.astype(v, "float64") for v in (first, second)))
    length = op.astype(op.sqrt(op.add(*squares)), dtype)
    infinite = op.logical_or(_is_infinite(first), _is_infinite(second))
    return op.where(infinite, relax.const(np.inf, dtype), length)


def _copysign(first: Any, second: Any) -> Any:
    return op.where(_signbit(second), op.negative(op.abs(first)), op.abs(first))


def _number_of(better: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the larger or smaller one, and a number rather than NaN."""
    return lambda a, b: op.where(_is_nan(a), b, op.where(_is_nan(b), a, better(a, b)))


def _scaled(given: Operands) -> Any:
    first, second = given.values
    return op.multiply(first, op.power(given.number(2), second))


def _reversed(given: Operands) -> Any:
    first, second = given.values
    alpha = given.options.get("alpha", 1)
    return op.subtract(second, first if alpha == 1 else op.multiply(first, given.number(alpha)))


def _extreme(of_numbers: Callable[[Any, Any], Any], of_booleans: Callable[[Any, Any], Any]) -> Any:
    return Elementwise(
        EXACT,
        2,
        lambda given: (of_booleans if given.dtype == "bool" else of_numbers)(*given.values),
    )


_TRIGONOMETRY = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh")
_TRANSCENDENTAL = (*_TRIGONOMETRY, "tan", "tanh", "exp", "log", "erf", "sigmoid")
_OF_LIBM = ("erfc", "lgamma")
"""Functions that lose digits where they are composed from others."""
_COMPARISONS = {
    "eq": op.equal,
    "ne": op.not_equal,
    "lt": op.less,
    "le": op.less_equal,
    "gt": op.greater,
    "ge": op.greater_equal,
}

ELEMENTWISE: Mapping[str, Elementwise] = {
    **{name: unary(FLOAT, getattr(op, name)) for name in _TRANSCENDENTAL},
    **{name: Elementwise(FLOAT, 1, partial(_by_libm, name)) for name in _OF_LIBM},
    "exp2": unary(FLOAT, lambda x: op.power(relax.const(2, str(x.ty.dtype)), x)),
    "expm1": unary(FLOAT, _expm1),
    "log10": unary(FLOAT, _logarithm(10)),
    "log1p": unary(FLOAT, _log1p),
    "log2": unary(FLOAT, _logarithm(2)),
    "reciprocal": unary(FLOAT, lambda x: op.divide(relax.const(1, str(x.ty.dtype)), x)),
    "rsqrt": unary(FLOAT, op.rsqrt),
    "sqrt": unary(FLOAT, op.sqrt),
    "abs": unary(EXACT, _absolute),
    "bitwise_not": unary(EXACT, _not),
    "ceil": _whole(op.ceil),
    "floor": _whole(op.floor),
    "trunc": _whole(op.trunc),
    "round": Elementwise(WIDE, 1, _round),
    "neg": Elementwise(EXACT, 1, _negative),
    "relu": Elementwise(EXACT, 1, _relu),
    "elu": Elementwise(WIDE, 1, _elu),
    "gelu": Elementwise(WIDE, 1, _gelu),
    "sign": unary(EXACT, _sign),
    "sgn": unary(EXACT, _sign),
    "signbit": unary(BOOL, _signbit),
    "isfinite": unary(BOOL, _is_finite),
    "isinf": unary(BOOL, _is_infinite),
    "isnan": unary(BOOL, _is_nan),
    "logical_not": _logical(op.logical_not, 1),
    "logical_and": _logical(op.logical_and, 2),
    "logical_or": _logical(op.logical_or, 2),
    "logical_xor": _logical(op.logical_xor, 2),
    **{name: binary(BOOL, compared) for name, compared in _COMPARISONS.items()},
    "add": Elementwise(EXACT, 2, _add),
    "sub": Elementwise(EXACT, 2, _subtract),
    "rsub": Elementwise(EXACT, 2, _reversed),
    "mul": Elementwise(EXACT, 2, _multiply),
    "floor_divide": Elementwise(WIDE, 2, _floored),
    "remainder": Elementwise(WIDE, 2, _remainder),
    "fmod": Elementwise(WIDE, 2, _fmod),
    "pow": Elementwise(POWER, 2, _power),
    "atan2": Elementwise(FLOAT, 2, _atan2),
    "hypot": binary(WIDE, _hypot),
    "copysign": binary(FLOAT, _copysign),
    "ldexp": Elementwise(FLOAT, 2, _scaled),
    "maximum": _extreme(op.maximum, op.logical_or),
    "minimum": _extreme(op.minimum, op.logical_and),
    "fmax": _extreme(_number_of(op.maximum), op.logical_or),
    "fmin": _extreme(_number_of(op.minimum), op.logical_and),
    "clamp": Elementwise(EXACT, 3, _clamp),
    "clamp_min": Elementwise(EXACT, 2, _clamp),
    "clamp_max": _extreme(op.minimum, op.logical_and),
    "bitwise_and": _bits(op.bitwise_and, op.logical_and),
    "bitwise_or": _bits(op.bitwise_or, op.logical_or),
    "bitwise_xor": _bits(op.bitwise_xor, op.logical_xor),
    "__and__": _bits(op.bitwise_and, op.logical_and),
    "__or__": _bits(op.bitwise_or, op.logical_or),
    "__xor__": _bits(op.bitwise_xor, op.logical_xor),
    "bitwise_left_shift": _shift(left=True),
    "bitwise_right_shift": _shift(left=False),
    "__lshift__": _shift(left=True),
    "__rshift__": _shift(left=False),
}
"""The operators by name, which covers all overloads."""
DIVISIONS: Mapping[bool, Elementwise] = {
    False: binary(FLOAT, op.divide),
    True: Elementwise(WIDE, 2, _division),
}
"""The variants of `div`, by whether it rounds."""


def converted(block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert a node by the tables."""
    name = operator_name(node)
    if name == "div":
        is_rounded = node.kwargs.get("rounding_mode") is not None
        return computed(DIVISIONS[is_rounded], block, node, environment)
    return computed(ELEMENTWISE[name], block, node, environment)


def chosen(block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert `where`, whose alternatives may have two types."""
    dtype = dtype_name(node.meta["val"].dtype)
    condition, *values = (environment[argument] for argument in node.args)
    first, second = (block.emit(as_type(value, dtype)) for value in values)
    return block.emit(op.where(block.emit(as_type(condition, "bool")), first, second))


def any_true(block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert `any`, over all elements or along some axes."""
    options = options_of(node)
    truth = op.astype(block.emit(as_type(environment[node.args[0]], "bool")), "int8")
    found = op.max(truth, options.get("dim"), keepdims=bool(options.get("keepdim", False)))
    wanted = dtype_name(node.meta["val"].dtype)  # any of bytes is a byte
    return block.emit(as_type(block.emit(op.astype(found, "bool")), wanted))


_REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "amax.default": op.max,
    "amin.default": op.min,
    "prod.dim_int": op.prod,
}


def reduced(block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert a reduction along some axes, in the type of its result."""
    options, wanted = options_of(node), dtype_name(node.meta["val"].dtype)
    within = "int8" if wanted == "bool" else wanted
    value = block.emit(as_type(environment[node.args[0]], within))
    axes = options.get("dim")
    reduce = _REDUCTIONS[node.target.__name__]
    found = reduce(value, None if axes == [] else axes, keepdims=bool(options.get("keepdim")))
    return block.emit(as_type(block.emit(found), wanted))


def least(block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert `min` along one axis: the least elements and their places."""
    options, wanted = options_of(node), dtype_name(node.meta["val"][0].dtype)
    value = environment[node.args[0]]
    value = block.emit(as_type(value, "int8" if wanted == "bool" else wanted))
    axis, keep = options["dim"], bool(options.get("keepdim"))
    places = op.astype(block.emit(op.argmin(value, axis, keepdims=keep)), "int64")
    found = block.emit(as_type(block.emit(op.min(value, axis, keepdims=keep)), wanted))
    return block.emit(relax.Tuple([found, block.emit(places)]))


def copied(block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert a copy: the tensor in the type of the target."""
    return block.emit(as_type(environment[node.args[0]], dtype_name(node.meta["val"].dtype)))


def targets() -> Mapping[str, Callable[[Any, Any, Mapping[Any, Any]], Any]]:
    """Return the converters of this module's operators, by name with overload."""
    found: dict[str, Callable[[Any, Any, Mapping[Any, Any]], Any]] = {
        **dict.fromkeys(("any.default", "any.dim", "any.dims"), any_true),
        **dict.fromkeys(_REDUCTIONS, reduced),
        "min.dim": least,
        "where.self": chosen,
        "_to_copy.default": copied,
    }
    for name in (*ELEMENTWISE, "div"):
        overloads = getattr(torch.ops.aten, name).overloads()
        found.update({f"{name}.{overload}": converted for overload in overloads})
    return found
