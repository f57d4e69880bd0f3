"""What Arm Compute Library takes."""

from __future__ import annotations

import math
from dataclasses import replace

from edgekit.backends.base import Layer, Refused, Rule
from edgekit.backends.match import Match
from edgekit.backends.plain.rules import Takes
from edgekit.backends.plain.rules import all_rules as rules_of
from edgekit.backends.rule_tools import OUT

_HARD_SWISH = (1 / 6, 0.5)
_FUSED = frozenset({"nn.relu", "nn.leakyrelu", "clip", "hard_swish", "hard_swish_6"})
_CURVES = _FUSED | {"sigmoid", "tanh", "elu"}


def all_rules() -> tuple[Rule, ...]:
    return rules_of(
        Takes(
            library="ACL",
            most_axes=4,
            curves=_CURVES,
            fused=_FUSED,
            fused_sum=frozenset(),
            unary=frozenset({"abs", "negative", "square", "sqrt", "exp", "log"}),
            binary=frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum"}),
            reductions=frozenset(),
            others=frozenset({"view", "softmax", "concat", "prelu", "resize"}),
            check=_checked,
        )
    )


def _checked(match: Match, layer: Layer) -> Layer:
    settings = layer.settings
    if layer.kind == "deconvolution":
        raise Refused("ACL has no transposed convolution with all of its settings")
    if layer.kind == "convolution" and settings["groups"] not in (1, match.shape("input")[1]):
        raise Refused("its groups are of several channels")
    if layer.kind in ("convolution", "pooling") and len(match.shape("input")) == 3:
        layer = _as_image(match, layer)
    values = settings.get("curve_values")
    if str(settings.get("curve", "")).startswith("hard_swish"):
        assert isinstance(values, tuple)
        if any(abs(own - theirs) > 1e-6 for own, theirs in zip(values, _HARD_SWISH, strict=True)):
            raise Refused("its hard swish has other constants than ACL's")
    if layer.kind == "softmax":
        shape = match.shape("input")
        if settings["axis"] != len(shape) - 1:
            raise Refused("it is not over the last axis")
        view = (math.prod(shape[:-1]), shape[-1])
        return replace(layer, settings={**settings, "view0": view, "makes": view})
    return layer


def _as_image(match: Match, layer: Layer) -> Layer:
    """What works along one axis, as what works on images one pixel high."""
    settings = dict(layer.settings)
    neutral = {"strides": 1, "dilations": 1, "kernel": 1, "before": 0, "after": 0}
    for name, value in neutral.items():
        own = settings.get(name)
        if isinstance(own, tuple):
            settings[name] = (value, int(own[0]))
    batch, channels, extent = match.shape("input")
    made = settings.get("makes", match.shape(OUT))
    assert isinstance(made, tuple)
    settings["view0"] = (batch, channels, 1, extent)
    settings["makes"] = (int(made[0]), int(made[1]), 1, int(made[2]))
    weights = dict(layer.weights)
    if "weight" in weights:
        weight = weights["weight"]
        weights["weight"] = weight.reshape(*weight.shape[:-1], 1, weight.shape[-1])
    return replace(layer, settings=settings, weights=weights)
