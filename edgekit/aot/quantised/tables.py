"""Functions of one stored byte, as tables of 256 results exactly like LiteRT's.

Where LiteRT has integer arithmetic for a function, the table is computed with it. Where LiteRT
makes a table from floats, or the model means floats, it is computed in floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.aot.arithmetic import (
    fixed_point,
    float_product,
    high_half,
    multiply,
    saturated,
    shift_right,
)
from edgekit.aot.operators import FixedPoint, Lookup
from edgekit.aot.quantised.graph import Source, Target
from edgekit.base.arrays import Array

STORED = tuple(range(-128, 128))


def rescaled(source: Source, target: Target, elements: int, litert: bool) -> Lookup:
    """Convert one quantisation to another."""
    if not litert:
        return by_floats(source, target, elements, "requantise", lambda value: value)
    factor = fixed_point(source.scale / target.scale)
    return Lookup(elements, "requantise", _by_integers(source, target, lambda _: factor))


def cut_off(source: Source, target: Target, elements: int, name: str) -> Lookup:
    """Apply ReLU and its kin, whose factor LiteRT computes in single precision."""
    factor = fixed_point(float(np.float32(source.scale) / np.float32(target.scale)))
    return Lookup(elements, name, _by_integers(source, target, lambda _: factor))


def leaky_relu(source: Source, target: Target, elements: int, alpha: float) -> Lookup:
    ratio = np.float32(source.scale) / np.float32(target.scale)
    above = fixed_point(float(ratio))
    steep = float_product(source.scale, alpha)
    below = fixed_point(float(np.float32(steep) / np.float32(target.scale)))
    return Lookup(
        elements,
        "leaky relu",
        _by_integers(source, target, lambda value: above if value >= 0 else below),
    )


def absolute(source: Source, target: Target, elements: int) -> Lookup:
    factor = fixed_point(float(np.float32(source.scale) / np.float32(target.scale)))
    return Lookup(elements, "abs", _by_integers(source, target, lambda _: factor, abs))


def _by_integers(
    source: Source,
    target: Target,
    factor_of: Callable[[int], FixedPoint],
    seen: Callable[[int], int] = lambda value: value,
) -> tuple[int, ...]:
    """Return the table; `seen` maps a value before it is multiplied."""
    shifted = [seen(stored - source.zero_point) for stored in STORED]
    return tuple(
        saturated(multiply(value, factor_of(value)) + target.zero_point, target.low, target.high)
        for value in shifted
    )


def by_floats(
    source: Source,
    target: Target,
    elements: int,
    name: str,
    function: Callable[[Array], Array],
    *,
    even: bool = True,
) -> Lookup:
    """Compute a table as onnxruntime and LiteRT do; they break ties differently."""
    stored = np.array(STORED, "int32")
    with np.errstate(all="ignore"):
        real = function((stored - source.zero_point).astype("float32") * np.float32(source.scale))
        if even:
            steps = np.rint(real / np.float32(target.scale)).astype("float64")
        else:
            scaled = real * (np.float32(1) / np.float32(target.scale))
            steps = np.floor(np.abs(scaled).astype("float64") + 0.5) * np.sign(scaled)
        results = np.nan_to_num(steps, nan=0.0) + target.zero_point
    return Lookup(
        elements,
        name,
        tuple(int(value) for value in np.clip(results, target.low, target.high)),
    )


def hard_swish(source: Source | Target, target: Target, elements: int) -> Lookup:
    """Compute x * relu6(x + 3) / 6 in LiteRT's 16-bit fixed point."""
    fine = np.float32(np.float32(1 / 128) * np.float32(source.scale))
    output, output_shift = _half_factor(float(fine / np.float32(target.scale)))
    gate_scale = np.float32(np.float32(3) / np.float32(32768))
    gate, gate_shift = _half_factor(float(fine / gate_scale))

    def result(stored: int) -> int:
        value = (stored - source.zero_point) << 7
        outer = high_half(value, output, 16)
        inner = value
        if gate_shift > 0:
            inner = _saturated16(inner << (gate_shift - 1))
        inner = high_half(inner, gate, 16)
        if gate_shift > 0:
            inner = _saturated16(inner << 1)
        inner = shift_right(inner, -gate_shift)
        inner = (inner + (1 << 15)) >> 1
        product = inner * outer
        half = abs(product) // (1 << 15) * (1 if product >= 0 else -1)
        return saturated(
            shift_right(half, -output_shift) + target.zero_point, target.low, target.high
        )

    return Lookup(elements, "hard swish", tuple(result(stored) for stored in STORED))


def _half_factor(factor: float) -> tuple[int, int]:
    """Return a fixed-point factor with a multiplier of 16 bits."""
    whole = fixed_point(factor)
    return min((whole.multiplier + (1 << 15)) >> 16, 32767), whole.shift


def _saturated16(value: int) -> int:
    return max(-32768, min(32767, value))


def _exact(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Compute elementwise in double precision, then round to single."""

    def apply(values: Array) -> Array:
        flat = [function(float(value)) for value in values.reshape(-1)]
        return np.array(flat, "float32").reshape(values.shape)

    return apply


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)


def _gelu(value: float) -> float:
    return 0.5 * value * (1 + math.erf(value * math.sqrt(0.5)))


def _logistic(values: Array) -> Array:
    one = np.float32(1)
    result: Array = one / (one + _exact(_exp)(-values))
    return result


FUNCTIONS: Mapping[str, Callable[[Sequence[Array], Any], Array]] = {
    "relax.abs": lambda a, _: np.abs(a[0]),
    "relax.add": lambda a, _: a[0] + a[1],
    "relax.ceil": lambda a, _: np.ceil(a[0]),
    "relax.divide": lambda a, _: a[0] / a[1],
    "relax.equal": lambda a, _: a[0] == a[1],
    "relax.erf": lambda a, _: _exact(math.erf)(a[0]),
    "relax.exp": lambda a, _: _exact(_exp)(a[0]),
    "relax.floor": lambda a, _: np.floor(a[0]),
    "relax.greater": lambda a, _: a[0] > a[1],
    "relax.greater_equal": lambda a, _: a[0] >= a[1],
    "relax.less": lambda a, _: a[0] < a[1],
    "relax.less_equal": lambda a, _: a[0] <= a[1],
    "relax.log": lambda a, _: np.log(a[0].astype("float64")).astype("float32"),
    "relax.maximum": lambda a, _: np.maximum(a[0], a[1]),
    "relax.minimum": lambda a, _: np.minimum(a[0], a[1]),
    "relax.multiply": lambda a, _: a[0] * a[1],
    "relax.negative": lambda a, _: -a[0],
    "relax.nn.gelu": lambda a, _: _exact(_gelu)(a[0]),
    "relax.nn.leakyrelu": lambda a, attrs: np.where(
        a[0] >= 0, a[0], a[0] * np.float32(attrs.alpha)
    ),
    "relax.nn.relu": lambda a, _: np.maximum(a[0], np.float32(0)),
    "relax.nn.relu6": lambda a, _: np.clip(a[0], np.float32(0), np.float32(6)),
    "relax.nn.silu": lambda a, _: a[0] * _logistic(a[0]),
    "relax.power": lambda a, _: np.power(a[0], a[1]),
    "relax.rsqrt": lambda a, _: np.float32(1) / np.sqrt(a[0]),
    "relax.sigmoid": lambda a, _: _logistic(a[0]),
    "relax.sign": lambda a, _: np.sign(a[0]),
    "relax.sqrt": lambda a, _: np.sqrt(a[0]),
    "relax.square": lambda a, _: a[0] * a[0],
    "relax.subtract": lambda a, _: a[0] - a[1],
    "relax.tanh": lambda a, _: _exact(math.tanh)(a[0]),
    "relax.where": lambda a, _: np.where(a[0], a[1], a[2]),
}
"""Element-wise operators that a table can hold, in single precision."""
