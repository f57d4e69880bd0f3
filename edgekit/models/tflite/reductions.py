"""Reductions of plain numbers, of which TVM's converter gives other results than LiteRT."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tflite
from tvm import relax

from edgekit.models import arithmetic
from edgekit.models.tflite.conversion import Conversion

op = relax.op
_OF_TRUTHS: Mapping[str, Callable[..., Any]] = {
    "REDUCE_MAX": op.max,
    "REDUCE_MIN": op.min,
}


def converters(
    converter: Conversion, others: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return a converter for each of these operators; `others` convert all other types."""

    def made(name: str) -> Callable[..., Any]:
        def convert(op: tflite.Operator) -> Any:
            source, places = converter.get_input_tensors(op)
            dtype = converter.get_tensor_type_str(source.tensor.Type())
            if name in _OF_TRUTHS and dtype == "bool":
                return _of_truths(converter, name, op)
            if name == "MEAN" and not source.qnn_params and dtype in ("int32", "int64"):
                axes = [int(axis) for axis in converter.get_tensor_value(places).reshape(-1)]
                return _whole_mean(converter, converter.get_expr(source.tensor_idx), axes, op)
            return others[name](op=op)

        return convert

    return {name: made(name) for name in (*_OF_TRUTHS, "MEAN")}


def _keeps_dimensions(operator: tflite.Operator) -> bool:
    options, table = tflite.ReducerOptions(), operator.BuiltinOptions()
    if table is None:
        return False
    options.Init(table.Bytes, table.Pos)
    return bool(options.KeepDims())


def _of_truths(converter: Conversion, name: str, operator: tflite.Operator) -> Any:
    """Reduce truths as the numbers 0 and 1."""
    source, places = converter.get_input_tensors(operator)
    numbers = op.astype(converter.get_expr(source.tensor_idx), "int8")
    axes = [int(axis) for axis in converter.get_tensor_value(places).reshape(-1)]
    return op.astype(_OF_TRUTHS[name](numbers, axes, _keeps_dimensions(operator)), "bool")


def _whole_mean(
    converter: Conversion, value: Any, axes: list[int], operator: tflite.Operator
) -> Any:
    """Divide the sum of whole numbers towards zero."""
    dtype = str(value.ty.dtype)
    shape = [int(extent) for extent in value.ty.shape]
    total = op.sum(op.astype(value, "int64"), axes, _keeps_dimensions(operator))
    count = relax.const(math.prod(shape[axis] for axis in set(axes)), "int64")
    quotient = arithmetic.truncated_division(converter.bb, converter.bb.emit(total), count)
    return op.astype(quotient, dtype)
