"""LSTM in integers, bit for bit as LiteRT computes it: int8 values and weights, int16 cells.

Gates are numbers of 16 bits with 3 in front of the point before their activation, and with none
behind it. Activations are tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.tensors import Quantization
from edgekit.models.tflite.file import TfliteTensor
from edgekit.models.tflite.fixed_point import logistic_table, tangent_table

op = relax.op
_GATE = np.float32(2.0**-12)
"""The step of a gate before its activation."""
_HIDDEN, _CELL = 18, 19
_BYTE, _SHORT = (-128, 127), (-32768, 32767)


class Layer(Protocol):
    """An operator with its tensors, as recurrent.py has it."""

    options: Any
    intermediates: tuple[int, ...]

    def has(self, place: int) -> bool: ...

    def tensor(self, place: int) -> TfliteTensor: ...

    def intermediate(self, place: int) -> TfliteTensor: ...

    def raw(self, place: int) -> Array: ...

    def emit(self, value: Any) -> Any: ...


def product(layer: Layer, value: Any, place: int) -> Any:
    """Return the input's or the state's part of a gate, in int32."""
    source = 0 if place < 5 else _HIDDEN
    bias = layer.raw(place + 11) if place < 5 and layer.has(place + 11) else 0
    scale = _scale(layer, place) * _scale(layer, source) / _GATE
    return _scaled(layer, _summed(layer, value, place, _zero(layer, source), bias), scale)


def step(layer: Layer, parts: Sequence[Any], states: dict[int, Any]) -> Any:
    """Compute a step with the gates in TFLite's order: input, forget, cell, output."""
    hidden, cell = states[_HIDDEN], layer.emit(op.astype(states[_CELL], "int32"))
    shift = _shift(layer)

    def gate(number: int, peeped: Any) -> Any:
        own = _clipped(layer, parts[number], _SHORT)
        total = _clipped(layer, op.add(product(layer, hidden, 5 + number), own), _SHORT)
        peephole = (9, 10, -1, 11)[number]
        if peephole > 0 and layer.has(peephole):
            weights = relax.const(layer.raw(peephole).astype("int32"))
            scale = np.float32(2.0**shift) * _scale(layer, peephole) / _GATE
            seen = _scaled(layer, layer.emit(op.multiply(peeped, weights)), scale)
            total = _clipped(layer, op.add(seen, total), _SHORT)
        return _looked_up(layer, total, tangent_table(3) if number == 2 else logistic_table(3))

    forget = gate(1, cell)
    if layer.has(1):
        admit = gate(0, cell)
    else:
        admit = layer.emit(op.subtract(relax.const(32767, "int32"), forget))
    kept = _rounded(layer, op.multiply(forget, cell), 15)
    fresh = _rounded(layer, op.multiply(admit, gate(2, cell)), 30 + shift)
    cell = _clipped(layer, op.add(kept, fresh), _SHORT)
    cell = _limited(layer, cell, layer.options.CellClip(), _CELL, _SHORT[1])
    output = gate(3, cell)
    seen = layer.emit(op.multiply(output, _looked_up(layer, cell, tangent_table(15 + shift))))
    middle = layer.intermediate(4).quantization or Quantization((1.0,), (0,), None)
    scale = np.float32(2.0**-30) / np.float32(middle.scales[0])
    zero = relax.const(middle.zero_points[0], "int32")
    made = _clipped(layer, op.add(_scaled(layer, seen, scale), zero), _BYTE)
    states[_HIDDEN] = layer.emit(op.astype(made, "int8"))
    states[_CELL] = layer.emit(op.astype(cell, "int16"))
    return states[_HIDDEN]


def _summed(layer: Layer, value: Any, place: int, zero: int, bias: Array | int) -> Any:
    """Multiply by the weights; the zero point of the values goes into the bias."""
    weights = layer.raw(place).astype("int32")
    rows = (bias - zero * weights.sum(1)).astype("int32")
    wide = layer.emit(op.astype(value, "int32"))
    sums = op.matmul(wide, relax.const(np.ascontiguousarray(weights.T)), out_dtype="int32")
    return layer.emit(op.add(layer.emit(sums), relax.const(rows)))


def _scaled(layer: Layer, value: Any, scale: np.float32) -> Any:
    """Multiply int32 by a scale as LiteRT does: by 31 bits, then by a power of two; both round."""
    share, exponent = math.frexp(float(scale))
    factor = math.floor(share * (1 << 31) + 0.5)
    if factor == 1 << 31:
        factor, exponent = factor // 2, exponent + 1
    if exponent < -31:
        factor, exponent = 0, 0
    wide = layer.emit(op.astype(value, "int64"))
    up = relax.const(factor << max(exponent, 0), "int64")
    turned = op.add(op.multiply(wide, up), relax.const(1 << 30, "int64"))
    high = layer.emit(op.right_shift(layer.emit(turned), relax.const(31, "int64")))
    return layer.emit(op.astype(_rounded(layer, high, max(-exponent, 0), "int64"), "int32"))


def _rounded(layer: Layer, value: Any, bits: int, dtype: str = "int32") -> Any:
    """Divide by a power of two; half is rounded away from zero."""
    if not bits:
        return value
    held = layer.emit(value)
    sign = op.right_shift(held, relax.const(63 if dtype == "int64" else 31, dtype))
    nudged = op.add(op.add(held, relax.const(1 << (bits - 1), dtype)), layer.emit(sign))
    return layer.emit(op.right_shift(layer.emit(nudged), relax.const(bits, dtype)))


def _looked_up(layer: Layer, value: Any, table: Array) -> Any:
    flat = layer.emit(op.add(value, relax.const(32768, "int32")))
    found = layer.emit(op.take(relax.const(table), flat, 0, mode="clip"))
    return layer.emit(op.astype(found, "int32"))


def _limited(layer: Layer, value: Any, limit: float, place: int, most: int) -> Any:
    if limit <= 0:
        return value
    steps = int(min(limit / float(_scale(layer, place)), most))
    return _clipped(layer, value, (-steps, steps))


def _clipped(layer: Layer, value: Any, limits: tuple[int, int]) -> Any:
    low, high = (relax.const(limit, "int32") for limit in limits)
    return layer.emit(op.minimum(op.maximum(layer.emit(value), low), high))


def _shift(layer: Layer) -> int:
    """Return the power of two that is the step of the cell."""
    found = math.log2(_scale(layer, _CELL))
    if abs(found - round(found)) >= 1e-3 or not -15 <= round(found) <= -9:
        raise ValueError("the scale of its cell is no power of two that LiteRT takes")
    return round(found)


def _scale(layer: Layer, place: int) -> np.float32:
    stored = layer.tensor(place).quantization
    if stored is None or stored.axis is not None:
        raise ValueError(f"operand {place} of an LSTM of integers has no scale of its own")
    found: np.float32 = np.float32(stored.scales[0])
    return found


def _zero(layer: Layer, place: int) -> int:
    stored = layer.tensor(place).quantization
    return 0 if stored is None else stored.zero_points[0]
