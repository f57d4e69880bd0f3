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
_UNCLEAR = "its commands do not show which of them compute matrix products"


def with_roundings(made: Made, layers: Sequence[Layer]) -> Made:
    """Return the commands in which every layer that rounds once does so.

    Commands do not say which layer they compute. Biases and factors do: an operation has those of
    the layer's output channels, or of a slice of them.
    """
    products = [layer for layer in layers if layer.rounds_once]
    others = [layer for layer in layers if not layer.rounds_once]
    if not products:
        return made
    places: list[int] = []
    seen = [0] * len(products)
    for operation, memory in convolutions(made):
        found = scales_of(operation, memory)
        own = [k for k, layer in enumerate(products) if _has(layer, found)]
        if own and any(_has(layer, found) for layer in others):
            raise NotForVela(_UNCLEAR)
        for k in own:
            seen[k] += len(found)
        if own:
            places.append(operation.place)
    if any(count < len(layer.channels) for count, layer in zip(seen, products, strict=True)):
        raise NotForVela(_UNCLEAR)
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
