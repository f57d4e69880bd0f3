"""Output channels with the same value for every input: trained networks have many of them.

Their factors are tiny or zero, which kernels with few instructions for rounding can't take. They
become channels without weights, whose bias alone gives that value by an ordinary factor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from edgekit.aot.arithmetic import multiply
from edgekit.aot.operators import Conv2D, DepthwiseConv2D, FixedPoint, FullyConnected, Rescale
from edgekit.base.arrays import Array

Layer = TypeVar("Layer", Conv2D, DepthwiseConv2D, FullyConnected)

_QUARTER = FixedPoint(1 << 30, -1)
_EIGHTH = FixedPoint(1 << 30, -2)


def without_constant_channels(operator: Layer) -> Layer:
    """Return the same layer, with ordinary factors for channels whose result never changes."""
    import numpy as np

    rescale = operator.rescale
    if len(rescale.factors) == 1:
        return operator
    weights = np.array(operator.weights, np.int8)
    bias = np.array(operator.bias, np.int64)
    factors = list(rescale.factors)
    last = isinstance(operator, DepthwiseConv2D)
    for channel in range(len(factors)):
        own: Array = (weights[..., channel] if last else weights[channel]).astype(np.int64)
        positive, negative = int(own[own > 0].sum()), int(own[own < 0].sum())
        low, high = -128 - operator.zero_point, 127 - operator.zero_point
        least = int(bias[channel]) + positive * low + negative * high
        most = int(bias[channel]) + positive * high + negative * low
        if not -(1 << 31) <= least <= most < 1 << 31:
            continue
        value = stored(least, rescale, channel)
        if value != stored(most, rescale, channel):
            continue
        own_place = (..., channel) if last else channel
        weights[own_place] = 0
        factors[channel] = _EIGHTH if rescale.rounds_once else _QUARTER
        bias[channel] = (value - rescale.zero_point) * (8 if rescale.rounds_once else 4)
    return replace(
        operator,
        weights=weights,
        bias=bias.astype(np.int32),
        rescale=replace(rescale, factors=tuple(factors)),
    )


def stored(total: int, rescale: Rescale, channel: int) -> int:
    """Return the value that LiteRT stores for a sum."""
    factor = rescale.factors[channel]
    if rescale.rounds_once:
        places = 31 - factor.shift
        value = (total * factor.multiplier + (1 << (places - 1))) >> places
    else:
        value = multiply(total, factor)
    return min(max(value + rescale.zero_point, rescale.low), rescale.high)
