"""The rules for Arm Compute Library."""

from __future__ import annotations

import math
from dataclasses import replace

from edgekit.backends.acl import quantised
from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules import Takes
from edgekit.backends.plain.rules import all_rules as rules_of
from edgekit.backends.rule_tools import OUT

_HARD_SWISH = (1 / 6, 0.5)
_FUSED = frozenset({"nn.relu", "nn.leakyrelu", "clip", "hard_swish", "hard_swish_6"})
_CURVES = _FUSED | {"sigmoid", "tanh", "elu"}


_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod"})
_OTHERS = {"view", "softmax", "concat", "prelu", "resize", "slice", "pad", "permute"}


def all_rules(*, int8: bool) -> tuple[Rule, ...]:
    return (*(quantised.rules() if int8 else ()), *_of_floats())


def _of_floats() -> tuple[Rule, ...]:
    return rules_of(
        Takes(
            library="ACL",
            most_axes=4,
            curves=_CURVES,
            fused=_FUSED,
            fused_sum=frozenset(),
            unary=frozenset({"abs", "negative", "square", "sqrt", "exp", "log"}),
            binary=frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum"}),
            reductions=_REDUCTIONS,
            others=frozenset(_OTHERS),
            check=_checked,
        )
    )


def _checked(match: Match, layer: Layer) -> Layer:
    settings = layer.settings
    if layer.kind == "deconvolution":
        _check_transposed(layer)
    if layer.kind in ("convolution", "deconvolution", "pooling") and len(match.shape("input")) == 3:
        layer = _as_image(match, layer)
    values = settings.get("curve_values")
    if str(settings.get("curve", "")).startswith("hard_swish"):
        assert isinstance(values, tuple)
        if any(abs(own - theirs) > 1e-6 for own, theirs in zip(values, _HARD_SWISH, strict=True)):
            raise Refused("its hard swish has other constants than ACL's")
    if layer.kind == "permute" and len(match.shape("input")) < 3:
        return _as_three_axes(match, layer)
    if layer.kind == "softmax":
        shape = match.shape("input")
        if settings["axis"] != len(shape) - 1:
            raise Refused("it is not over the last axis")
        view = (math.prod(shape[:-1]), shape[-1])
        return replace(layer, settings={**settings, "view0": view, "makes": view})
    return layer


def _as_three_axes(match: Match, layer: Layer) -> Layer:
    """Return the permutation padded to three axes: ACL permutes three or four."""
    axes, missing = layer.settings["axes"], 3 - len(match.shape("input"))
    assert isinstance(axes, tuple)
    lead = (1,) * missing
    settings: dict[str, Setting] = {
        "axes": (*range(missing), *(int(axis) + missing for axis in axes)),
        "view0": (*lead, *match.shape("input")),
        "makes": (*lead, *match.shape(OUT)),
    }
    return replace(layer, settings=settings)


def _check_transposed(layer: Layer) -> None:
    dilations = layer.settings["dilations"]
    assert isinstance(dilations, tuple)
    if any(step != 1 for step in dilations):
        raise Refused("it is dilated, and ACL's transposed convolutions are not")
    kernel = layer.weights["weight"].shape[-len(dilations) :]
    if (1, *kernel)[-2] != kernel[-1]:
        raise Refused("its kernel is not square, as ACL's transposed ones are")


def _as_image(match: Match, layer: Layer) -> Layer:
    """Rewrite a layer along one axis as one on images that are one pixel high."""
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
