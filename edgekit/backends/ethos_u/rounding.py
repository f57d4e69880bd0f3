"""Matrix products round once: Vela asks for two roundings, and LiteRT has one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from edgekit.backends.ethos_u.network import Layer, NotForVela
from edgekit.backends.ethos_u.stream import convolutions, rounding_once, scales_of
from edgekit.backends.ethos_u.vela import Made

_EXACT = 1e-5
"""The relative difference of factors that Vela and edgekit make of the same scales."""


def with_roundings(made: Made, layers: Sequence[Layer]) -> Made:
    """Return the commands in which every layer that rounds once does so.

    Commands do not say which layer they compute. Biases and factors do: an operation has those of
    the layer's output channels, or of a slice of them.
    """
    if not any(layer.rounds_once for layer in layers):
        return made
    places = []
    for operation, memory in convolutions(made):
        found = scales_of(operation, memory)
        once = {layer.rounds_once for layer in layers if _has(layer, found)}
        if len(once) != 1:
            raise NotForVela("its commands do not show which of them compute matrix products")
        if True in once:
            places.append(operation.place)
    return replace(made, commands=rounding_once(made.commands, places))


def _has(layer: Layer, found: Sequence[tuple[int, float]]) -> bool:
    count = len(found)
    return any(
        all(
            bias == own_bias and math.isclose(factor, own_factor, rel_tol=_EXACT)
            for (bias, factor), (own_bias, own_factor) in zip(
                found, layer.channels[start : start + count], strict=True
            )
        )
        for start in range(len(layer.channels) - count + 1)
        if layer.channels[start][0] == found[0][0]
    )
