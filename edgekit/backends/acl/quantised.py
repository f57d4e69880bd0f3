"""Quantised layers in ACL's integer arithmetic: QASYMM8_SIGNED for int8, QASYMM8 for uint8, weights
with one scale per channel.

Zero points and the order of axes are the model's. ACL rescales sums in fixed point as LiteRT does,
but not always with the same roundings.
"""

from __future__ import annotations

import numpy as np

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.quantised import (
    ConvolutionWindow,
    QuantisedLayer,
    quantised_rules,
)
from edgekit.backends.rule_tools import OUT

_UNSIGNED_ZERO = 128


def rules() -> tuple[Rule, ...]:
    return quantised_rules(_take)


def _take(match: Match, layer: QuantisedLayer, window: ConvolutionWindow | None) -> Layer:
    unsigned = layer.dtype == "uint8"
    same = bool((layer.scales == layer.scales[0]).all())
    # Convolutions of uint8 take signed weights with a scale per channel, or unsigned weights.
    one_scale = same and not (unsigned and window is not None)
    weights = {
        "weight": layer.weight,
        "bias": layer.bias.astype("int32"),
        "scales": (layer.scales[:1] if one_scale else layer.scales).astype("float32"),
    }
    settings: dict[str, Setting] = {
        "unsigned": int(unsigned),
        "scale_a_channel": int(not one_scale),
        "channels_last": int(window is None or window.channels_last),
        "input_scale": layer.source.scale,
        "input_zero": layer.source.zero_point,
        "output_scale": layer.result.scale,
        "output_zero": layer.result.zero_point,
    }
    if layer.is_bounded:
        settings["bounds"] = tuple(
            layer.result.scale * (bound - layer.result.zero_point)
            for bound in (layer.low, layer.high)
        )
    if window is None:
        if not same:
            raise Refused("its weights have a scale for each channel, ACL's dense layers one")
        if any(len(match.shape(part)) != 2 for part in ("input", OUT)):
            raise Refused("it is not rows of numbers")
        if unsigned:
            weights["weight"] = (layer.weight.astype("int16") + _UNSIGNED_ZERO).astype("uint8")
            settings["weight_zero"] = _UNSIGNED_ZERO
        return Layer("stored_dense", ("input",), settings, weights)
    weight, order = layer.weight, [0, 2, 3, 1]
    if window.groups > 1:
        if not window.groups == len(layer.weight) == window.channels_of(match.shape("input")):
            raise Refused("its groups are of several channels")
        if any(before > after for before, after in zip(window.before, window.after, strict=True)):
            raise Refused(
                "it is padded more in front than behind, and there ACL's depthwise convolutions of "
                "integers read what lies before the image"
            )
        weight, order = weight[:, 0], [1, 2, 0]
    if window.channels_last:
        weight = weight.transpose(order)
    weights["weight"] = np.ascontiguousarray(weight)
    settings |= {
        "groups": window.groups,
        "strides": window.strides,
        "dilations": window.dilations,
        "before": window.before,
        "after": window.after,
    }
    return Layer("stored_convolution", ("input",), settings, weights)
