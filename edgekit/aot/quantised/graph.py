"""A view of a Relax function with quantised tensors: what is stored, how, and what is constant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from edgekit.aot.arithmetic import round_half_away
from edgekit.base.arrays import Array
from edgekit.base.node_names import named_after
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.macs import shape_of

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"
RESHAPES = frozenset(
    f"relax.{name}" for name in ("reshape", "flatten", "squeeze", "expand_dims", "collapse_sum_to")
)
MOVES = RESHAPES | {"relax.permute_dims"}
"""Operators that leave every value unchanged."""
_UNSIGNED_SHIFT = 128


class UnfitError(Exception):
    """The reason why a group that looks like an integer operator cannot be one."""


@dataclass(frozen=True)
class Target:
    """The result of a quantize call: real = scale * (stored - zero_point), kept in [low, high]."""

    scale: float
    zero_point: int
    low: int = -128
    high: int = 127

    def stored(self, real: float) -> int:
        return self.zero_point + round_half_away(float(np.float32(real) / np.float32(self.scale)))

    def between(self, low: float | None, high: float | None) -> Target:
        """Return the target narrowed to real values in a range."""
        least = self.low if low is None else max(self.low, self.stored(low))
        most = self.high if high is None else min(self.high, self.stored(high))
        return Target(self.scale, self.zero_point, min(least, self.high), max(most, self.low))


@dataclass(frozen=True, eq=False)
class Source:
    """A quantised tensor that a group reads: stored values, then moves of them."""

    tensor: Any
    """A variable of the function, of int8 or uint8, or a constant."""
    moves: tuple[Any, ...]
    shape: tuple[int, ...]
    """The shape after the moves."""
    scale: float
    zero_point: int
    """The zero point for storage as int8."""

    def means_the_same(self, target: Target) -> bool:
        """Return whether stored values stand for the same numbers on both sides."""
        close = math.isclose(self.scale, target.scale, rel_tol=1e-6)
        return close and self.zero_point == target.zero_point

    @property
    def is_constant(self) -> bool:
        return constant_array(self.tensor) is not None

    def values(self) -> Array:
        """Return a constant's stored values as int8, moved."""
        array = constant_array(self.tensor)
        assert array is not None
        array = signed(array)
        for move in self.moves:
            array = moved(array, move)
        return array


@dataclass(frozen=True, eq=False)
class QuantisedConstant:
    """Constant stored values without their zero point, and the scale of each."""

    values: Array
    scales: Array

    def moved(self, move: Any) -> QuantisedConstant:
        return QuantisedConstant(moved(self.values, move), moved(self.scales, move))


class Graph:
    """One function's bindings, followed backwards."""

    def __init__(self, bindings: Mapping[Any, Any]) -> None:
        self._bound = bindings

    def value(self, expression: Any) -> Any:
        """Return the call that a variable is bound to."""
        while expression in self._bound:
            expression = self._bound[expression]
        return expression

    def tensor(self, expression: Any) -> Any:
        """Return the first variable that holds the tensor, before copies."""
        while expression in self._bound and self._bound[expression] in self._bound:
            expression = self._bound[expression]
        return expression

    def target(self, call: Any) -> Target | None:
        """Return the result of a quantize call to int8 or uint8 with one scale."""
        parameters = _parameters(call)
        dtype = str(call.attrs.out_dtype)
        if parameters is None or dtype not in ("int8", "uint8"):
            return None
        scale, zero_point = parameters
        return Target(scale, zero_point - (_UNSIGNED_SHIFT if dtype == "uint8" else 0))

    def source(self, expression: Any) -> Source | None:
        """Return the quantised tensor of one scale behind a float, through any moves."""
        moves: list[Any] = []
        value = self.value(expression)
        shape = _shape(expression)
        while is_call(value, *MOVES):
            moves.append(value)
            value = self.value(value.args[0])
        if shape is None or not is_call(value, DEQUANTIZE):
            return None
        parameters, dtype = _parameters(value), str(value.args[0].ty.dtype)
        if parameters is None or dtype not in ("int8", "uint8"):
            return None
        tensor = self.tensor(value.args[0])
        array = constant_array(self.value(tensor))
        if array is not None:
            tensor = self.value(tensor)
        scale, zero_point = parameters
        if dtype == "uint8":
            zero_point -= _UNSIGNED_SHIFT
        return Source(tensor, tuple(reversed(moves)), shape, scale, zero_point)

    def quantised_constant(self, expression: Any) -> QuantisedConstant | None:
        moves: list[Any] = []
        value = self.value(expression)
        while is_call(value, *MOVES):
            moves.append(value)
            value = self.value(value.args[0])
        if not is_call(value, DEQUANTIZE):
            return None
        stored, scales, zeros = (self._constant(part) for part in value.args)
        if stored is None or scales is None or zeros is None:
            return None
        along = [1] * stored.ndim
        if scales.size > 1 or zeros.size > 1:
            along[int(value.attrs.axis)] = -1
        zero_points = zeros.astype("int64").reshape(along if zeros.size > 1 else ())
        constant = QuantisedConstant(
            stored.astype("int64") - zero_points,
            np.broadcast_to(
                scales.astype("float64").reshape(along if scales.size > 1 else ()), stored.shape
            ),
        )
        for move in reversed(moves):
            constant = constant.moved(move)
        return constant

    def _constant(self, expression: Any) -> Array | None:
        """Return a constant, or one that the importer leaves unfolded: two scales multiplied."""
        value = self.value(expression)
        if is_call(value, "relax.multiply"):
            left, right = (self._constant(argument) for argument in value.args)
            return None if left is None or right is None else left * right
        return constant_array(value)

    def real_constant(self, expression: Any) -> Array | None:
        """Return a constant as floats: stored so, or dequantised."""
        array = constant_array(self.value(expression))
        if array is not None:
            return array
        value = self.value(expression)
        if is_call(value, *MOVES):
            inner = self.real_constant(value.args[0])
            return None if inner is None else moved(inner, value)
        constant = self.quantised_constant(expression)
        if constant is None:
            return None
        real: Array = constant.values.astype("float32") * constant.scales.astype("float32")
        return real

    def number(self, expression: Any) -> float | None:
        array = self.real_constant(expression)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def layers(self, expression: Any) -> tuple[str, ...]:
        """Return the model's nodes between a group's end and its sources, the last first."""
        found: list[str] = []
        ends: list[str] = []
        pending, seen = [expression], set()
        while pending:
            current = pending.pop(0)
            if isinstance(current, tvm.relax.Tuple):
                pending.extend(current.fields)
                continue
            value = self._bound.get(current)
            if value is None or current in seen:
                continue
            seen.add(current)
            name = named_after(str(current.name))
            if is_call(value, DEQUANTIZE):
                continue
            if name:
                (ends if is_call(value, QUANTIZE) else found).append(name)
            if is_call(value, QUANTIZE) and current is not expression:
                continue
            pending.extend(value.args if isinstance(value, tvm.relax.Call) else [value])
        return tuple(dict.fromkeys(found or ends))


def is_call(expression: Any, *names: str) -> bool:
    operator = getattr(expression, "op", None)
    return isinstance(operator, tvm.ir.Op) and operator.name in names


def operator_name(call: Any) -> str:
    """Return the name of an operator for a report."""
    return str(getattr(getattr(call, "op", None), "name", "")).rpartition(".")[2]


def moved(array: Array, move: Any) -> Array:
    if not is_call(move, "relax.permute_dims"):
        return array.reshape(shape_of(move))
    axes = move.attrs.axes
    return np.transpose(array, None if axes is None else [int(axis) for axis in axes])


def signed(array: Array) -> Array:
    """Return bytes of either type as int8."""
    if array.dtype == np.uint8:
        return (array.astype("int16") - _UNSIGNED_SHIFT).astype("int8")
    return array


def integers(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _shape(expression: Any) -> tuple[int, ...] | None:
    shape = getattr(getattr(expression, "ty", None), "shape", None)
    if shape is None or not all(hasattr(extent, "value") for extent in shape):
        return None
    return tuple(int(extent) for extent in shape)


def _parameters(call: Any) -> tuple[float, int] | None:
    scale, zero_point = constant_array(call.args[1]), constant_array(call.args[2])
    if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
        return None
    return float(scale.item()), int(zero_point.item())
