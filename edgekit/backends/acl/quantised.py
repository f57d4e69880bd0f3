"""Layers of quantised models in ACL's integers: QASYMM8_SIGNED, weights with a scale a channel.

ACL's zero points are the model's, and so is its order of axes, channels last. It multiplies sums in
fixed point as LiteRT does, but not everywhere with the same roundings.
"""

from __future__ import annotations

import numpy as np

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.quantised import (
    HIGHEST,
    LOWEST,
    QuantisedLayer,
    Window,
    quantised_rules,
)
from edgekit.backends.rule_tools import OUT


def rules() -> tuple[Rule, ...]:
    return quantised_rules(_take)


def _take(match: Match, layer: QuantisedLayer, window: Window | None) -> Layer:
    same = bool((layer.scales == layer.scales[0]).all())
    weights = {
        "weight": layer.weight,
        "bias": layer.bias.astype("int32"),
        "scales": (layer.scales[:1] if same else layer.scales).astype("float32"),
    }
    settings: dict[str, Setting] = {
        "input_scale": layer.source.scale,
        "input_zero": layer.source.zero_point,
        "output_scale": layer.result.scale,
        "output_zero": layer.result.zero_point,
    }
    if (layer.low, layer.high) != (LOWEST, HIGHEST):
        settings["bounds"] = tuple(
            layer.result.scale * (bound - layer.result.zero_point)
            for bound in (layer.low, layer.high)
        )
    if window is None:
        if not same:
            raise Refused("its weights have a scale a channel, which ACL's dense layers have not")
        if any(len(match.shape(part)) != 2 for part in ("input", OUT)):
            raise Refused("it is not rows of numbers")
        return Layer("stored_dense", ("input",), settings, weights)
    if window.groups == 1:
        weights["weight"] = np.ascontiguousarray(layer.weight.transpose(0, 2, 3, 1))
    else:
        if not window.groups == len(layer.weight) == match.shape("input")[3]:
            raise Refused("its groups are of several channels")
        weights["weight"] = np.ascontiguousarray(layer.weight[:, 0].transpose(1, 2, 0))
    settings |= {
        "groups": window.groups,
        "strides": window.strides,
        "dilations": window.dilations,
        "before": window.before,
        "after": window.after,
    }
    return Layer("stored_convolution", ("input",), settings, weights)
