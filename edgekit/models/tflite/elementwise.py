"""Elementwise operators on plain numbers, of which TVM's converter gives other results than LiteRT.

Quantised tensors stay with TVM's converter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tflite
from tvm import relax

from edgekit.models import arithmetic
from edgekit.models.tflite.conversion import Conversion

op = relax.op


def _is_float(value: Any) -> bool:
    return str(value.ty.dtype).startswith("float")


def _maximum(converter: Conversion, first: Any, second: Any) -> Any:
    """Return the second operand where either is NaN, as LiteRT does."""
    return op.where(op.greater(first, second), first, second)


def _minimum(converter: Conversion, first: Any, second: Any) -> Any:
    return op.where(op.less(first, second), first, second)


def _sign(converter: Conversion, value: Any) -> Any:
    """Keep NaN."""
    one, zero = (relax.const(number, str(value.ty.dtype)) for number in (1, 0))
    below = op.where(op.less(value, zero), op.negative(one), value)
    return op.where(op.greater(value, zero), one, below)


def _quotient(converter: Conversion, first: Any, second: Any) -> Any:
    if _is_float(first):
        return op.divide(first, second)
    return arithmetic.truncated_division(converter.bb, first, second)


def _floored_quotient(converter: Conversion, first: Any, second: Any) -> Any:
    if _is_float(first):
        return op.floor(op.divide(first, second))
    return arithmetic.floored_division(converter.bb, first, second)


def _remainder(converter: Conversion, first: Any, second: Any) -> Any:
    return arithmetic.floored_remainder(converter.bb, first, second)


def _power(converter: Conversion, first: Any, second: Any) -> Any:
    if _is_float(first):
        return op.power(first, second)
    exact = op.power(*(op.astype(value, "float64") for value in (first, second)))
    return op.astype(op.trunc(exact), str(first.ty.dtype))


def _squared_difference(converter: Conversion, first: Any, second: Any) -> Any:
    difference = converter.bb.emit(op.subtract(first, second))
    return op.multiply(difference, difference)


def _quantised(converter: Conversion, value: Any) -> Any:
    raise ValueError("it quantises what is neither float nor quantised")


def _to_float32(converter: Conversion, value: Any) -> Any:
    return op.astype(value, "float32")


_PLAIN: Mapping[str, Callable[..., Any]] = {
    "DEQUANTIZE": _to_float32,
    "DIV": _quotient,
    "FLOOR_DIV": _floored_quotient,
    "FLOOR_MOD": _remainder,
    "MAXIMUM": _maximum,
    "MINIMUM": _minimum,
    "POW": _power,
    "QUANTIZE": _quantised,
    "SIGN": _sign,
    "SQUARED_DIFFERENCE": _squared_difference,
}
"""The computations of plain tensors."""
_RIGHT_IN_TVM = {"MAXIMUM": False, "MINIMUM": False, "QUANTIZE": True}
"""Operators that TVM's converter has right: for floats only, or for whole numbers only."""


def _gelu(converter: Conversion, operator: tflite.Operator, value: Any) -> Any:
    """Compute in float32: in half precision small results lose their digits."""
    options = tflite.GeluOptions()
    table = operator.BuiltinOptions()
    is_tanh = False
    if table is not None:
        options.Init(table.Bytes, table.Pos)
        is_tanh = bool(options.Approximate())
    compute = op.nn.gelu_tanh if is_tanh else op.nn.gelu
    dtype = str(value.ty.dtype)
    return op.astype(compute(op.astype(value, "float32")), dtype)


def converters(
    converter: Conversion, others: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return a converter for each of these operators; `others` convert what is quantised."""

    def made(name: str) -> Callable[..., Any]:
        def convert(op: tflite.Operator) -> Any:
            tensors = converter.get_input_tensors(op)
            if any(tensor.qnn_params for tensor in tensors):
                return others[name](op=op)
            values = [converter.get_tensor_expr(tensor) for tensor in tensors]
            if name in _RIGHT_IN_TVM and _is_float(values[0]) == _RIGHT_IN_TVM[name]:
                return others[name](op=op)
            if name == "GELU":
                return _gelu(converter, op, *values)
            result = _PLAIN[name](converter, *values)
            return _activated(converter, op, result) if name == "DIV" else result

        return convert

    return {name: made(name) for name in (*_PLAIN, "GELU")}


def _activated(converter: Conversion, operator: tflite.Operator, result: Any) -> Any:
    options = tflite.DivOptions()
    table = operator.BuiltinOptions()
    if table is None:
        return result
    options.Init(table.Bytes, table.Pos)
    return converter.convert_fused_activation_function(
        converter.bb.normalize(result), options.FusedActivationFunction()
    )
