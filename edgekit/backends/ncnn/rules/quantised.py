"""Quantised layers in ncnn's integer arithmetic.

ncnn has no zero points: its int8 counts steps from -127 to 127. A tensor with a zero point is held
one step higher than the model stores it, so that -128, which every ReLU produces, is representable;
127, which only clipped values reach, becomes 126. uint8 is held as int8, shifted down by 128. The
bias absorbs the zero point and the extra step. Sums are exact; ncnn multiplies them by the scale in
float32 and rounds once, LiteRT in fixed point, mostly twice.
"""

from __future__ import annotations

import numpy as np

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.rules.common import require_batch_of_one
from edgekit.backends.plain.rules.quantised import (
    LIMITS,
    ConvolutionWindow,
    QuantisedLayer,
    quantised_rules,
)
from edgekit.backends.rule_tools import OUT

HELD_ABOVE = 1
"""Steps that ncnn holds a value above the model's; edgekit_ncnn.h has the same number."""
_CLIP = 3
_ONE_SCALE_A_CHANNEL, _AND_INTEGERS_OUT = 1, 100


def rules() -> tuple[Rule, ...]:
    return quantised_rules(_take)


def _take(match: Match, layer: QuantisedLayer, window: ConvolutionWindow | None) -> Layer:
    require_batch_of_one(match.shape("input"))
    highest = LIMITS[layer.dtype][1]
    if highest in (layer.source.zero_point, layer.result.zero_point):
        raise Refused(f"its zero is stored as {highest}, the number that ncnn does not have")
    above = HELD_ABOVE - (highest - LIMITS["int8"][1])
    zero = layer.source.zero_point + above
    sums = layer.weight.reshape(len(layer.weight), -1).sum(axis=1, dtype=np.int64)
    factors = layer.source.scale * layer.scales / layer.result.scale
    bias = factors * (layer.bias - zero * sums) + layer.result.zero_point + above
    weights = {
        "weight": layer.weight,
        "bias": bias.astype("float32"),
        # ncnn divides sums by these and by the input's scale to get floats.
        "weight_scales": np.divide(1, factors, out=np.zeros_like(factors), where=factors != 0),
        "input_scale": np.ones(1, "float32"),
    }
    settings: dict[str, Setting] = {
        "num_output": len(layer.weight),
        "weight_data_size": int(layer.weight.size),
        "bias_term": 1,
        "int8_scale_term": _ONE_SCALE_A_CHANNEL,
    }
    if layer.is_bounded:
        bounds = (float(layer.low + above), float(layer.high + above))
        settings |= {"activation_type": _CLIP, "activation_params": bounds}
    if window is None:
        _require_row(match)
        return Layer("InnerProduct", ("input",), settings, weights)
    settings["int8_scale_term"] = _ONE_SCALE_A_CHANNEL + _AND_INTEGERS_OUT
    weights["output_scale"] = np.ones(1, "float32")
    if window.groups > 1:
        if not window.groups == len(layer.weight) == window.channels_of(match.shape("input")):
            raise Refused("its groups are of several channels")
        settings["group"] = window.groups
    kernel = layer.weight.shape[2:]
    settings |= {
        "channels_last": int(window.channels_last),
        "kernel_h": int(kernel[0]),
        "kernel_w": int(kernel[1]),
        "stride_h": window.strides[0],
        "stride_w": window.strides[1],
        "dilation_h": window.dilations[0],
        "dilation_w": window.dilations[1],
        "pad_top": window.before[0],
        "pad_left": window.before[1],
        "pad_bottom": window.after[0],
        "pad_right": window.after[1],
        # As an unsigned byte: ncnn's vector code on x86 extends a negative number's sign.
        "pad_value": float(zero % 256),
    }
    name = "ConvolutionDepthWise" if window.groups > 1 else "Convolution"
    return Layer(name, ("input",), settings, weights)


def _require_row(match: Match) -> None:
    for part in ("input", OUT):
        if len(match.shape(part)) != 2:
            raise Refused("it is not one row")
