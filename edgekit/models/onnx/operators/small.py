"""Conversions of numbers of eight bits and less, which are bytes (models/onnx/small_types.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from edgekit.base.arrays import Array
from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import Converters, cast
from edgekit.models.onnx.small_types import values_of
from edgekit.models.onnx.values import as_expr, dtype_of

_NAN = {
    # What has no NaN gets the code that ml_dtypes gives.
    "float8_e4m3fn": 0x7F,
    "float8_e4m3fnuz": 0x80,
    "float8_e5m2": 0x7E,
    "float8_e5m2fnuz": 0x80,
    "float8_e8m0fnu": 0xFF,
    "float4_e2m1fn": 0x08,
}


def _from_small(node: Node) -> Outputs:
    table = as_expr(values_of(str(node.get("kind"))))
    return relax.op.take(table, node.emit(cast(node.expr(0), "int32")), axis=0, mode="clip")


def _to_small(node: Node) -> Outputs:
    """Round to the nearest of the type's numbers: count the borders between them that the size
    reaches."""
    kind = str(node.get("kind"))
    value = node.emit(cast(node.expr(0), "float32"))
    borders = as_expr(_borders(kind, bool(node.get("saturate")), str(node.get("round_mode"))))
    has_sign = kind != "float8_e8m0fnu"
    sign = 0 if not has_sign else 8 if kind == "float4_e2m1fn" else 0x80
    signed_zero = not kind.endswith("uz")

    def reached(x: Any, border: Any) -> Any:
        def count(*at: Any) -> Any:
            size = tirx.abs(x(*at)) if has_sign else x(*at)
            return te.sum(
                tirx.Cast("int32", size >= border[place]),
                axis=place,
            )

        place = te.reduce_axis((0, int(border.shape[0])), "place")
        return te.compute(x.shape, count, name="reached")

    def signed(x: Any, size: Any) -> Any:
        def code(*at: Any) -> Any:
            one, number = x(*at), size(*at)
            is_negative = tirx.reinterpret("int32", one) < 0
            if not signed_zero:
                is_negative = tirx.all(is_negative, number != 0)
            whole = tirx.Select(is_negative, number | sign, number) if has_sign else number
            return tirx.Cast("uint8", tirx.Select(tirx.isnan(one), _NAN[kind], whole))

        return te.compute(x.shape, code, name="code")

    size = node.block.emit_te(reached, value, borders, primfunc_name_hint="reached")
    return node.block.emit_te(signed, value, size, primfunc_name_hint="code")


def _borders(kind: str, saturate: bool, mode: str) -> Array:
    """Return for each code but the first the least size that has it. Ties go to even codes."""
    values = values_of(kind)
    if kind == "float8_e8m0fnu":
        values = values[:255].astype(np.float64)
        middle = {"up": values[:-1], "down": values[1:]}.get(mode, (values[:-1] + values[1:]) / 2)
        is_closed = np.full(254, mode != "up")
    else:
        last = {"float4_e2m1fn": 7, "float8_e4m3fn": 0x7E, "float8_e5m2": 0x7B}.get(kind, 0x7F)
        values = values[: last + 1].astype(np.float64)
        if not saturate:
            values = np.append(values, 2 * values[-1] - values[-2])
        middle = (values[:-1] + values[1:]) / 2
        is_closed = np.arange(middle.size) % 2 == 1
    border = middle.astype(np.float32)
    return np.asarray(np.where(is_closed, border, np.nextafter(border, np.float32(np.inf))))


def _to_bits(node: Node) -> Outputs:
    """Keep the lowest bits of a number whose fraction is cut off."""
    bits, signed = int(node.get("bits")), bool(node.get("signed"))
    value = node.expr(0)
    wide = cast(value, "int32") if dtype_of(value) != "bool" else cast(value, "uint8")
    wide = node.emit(cast(node.emit(wide), "int32"))
    low = node.emit(relax.op.bitwise_and(wide, relax.const((1 << bits) - 1, "int32")))
    if signed:
        half = relax.const(1 << bits - 1, "int32")
        low = node.emit(relax.op.subtract(node.emit(relax.op.bitwise_xor(low, half)), half))
    return cast(low, "int8" if signed else "uint8")


SMALL: Converters = {"FromSmall": _from_small, "ToBits": _to_bits, "ToSmall": _to_small}
