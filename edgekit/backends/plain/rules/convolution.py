"""Convolutions, transposed convolutions and dense layers, with what can be fused: a bias, the
addition of another tensor, an activation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.curves import CURVES, Curve
from edgekit.backends.plain.rules.takes import Takes
from edgekit.backends.rule_tools import OUT, integers, output_channels_first, per_channel

_LAYOUTS = {1: ("NCW", "OIW", "IOW"), 2: ("NCHW", "OIHW", "IOHW")}
_Take = Callable[[Match, Takes], Layer]


def rules(takes: Takes) -> list[Rule]:
    found = []
    for operator in ("conv2d", "conv1d", "conv2d_transpose", "conv1d_transpose"):
        found += _with_all(f"nn.{operator}", operator, _convolution, takes)
    return [*found, *_with_all("matmul", "dense", _dense, takes)]


def _with_all(operator: str, name: str, take: _Take, takes: Takes) -> list[Rule]:
    """Return rules for every combination, longest pattern first."""
    found = []
    if takes.fused_sum:
        curves: list[Curve | None] = [c for c in CURVES if c.name in takes.fused_sum]
        found += [
            _rule(operator, f"{name}+add", take, takes, curve, side)
            for curve in (*curves, None)
            for side in (0, 1)
        ]
    curves = [curve for curve in CURVES if curve.name in takes.fused]
    return [*found, *(_rule(operator, name, take, takes, curve) for curve in (*curves, None))]


def _rule(
    operator: str,
    name: str,
    take: _Take,
    takes: Takes,
    curve: Curve | None,
    other_side: int | None = None,
) -> Rule:
    """Return a rule. `other_side` is the other tensor's side of the addition; None: no addition."""
    data, weight, bias, other = wildcard(), is_const(), is_const(), wildcard()
    call = is_op(f"relax.{operator}")(data, weight)
    result: Any = is_op("relax.add")(call, bias) | is_op("relax.add")(bias, call) | call
    parts: dict[str, Any] = {"input": data, "weight": weight, "bias": bias, "call": call}
    if other_side is not None:
        result = is_op("relax.add")(*((other, result) if other_side == 0 else (result, other)))
        parts["other"] = other
    if curve is not None:
        result, own = curve.write(result)
        parts |= own

    def take_all(match: Match) -> Layer:
        takes.shape(match, OUT)
        layer = take(match, takes)
        settings, inputs = dict(layer.settings), layer.inputs
        if other_side is not None:
            if match.shape("other") != match.shape("call"):
                raise Refused("what is added to it has another shape")
            if takes.shape(match, "other") != settings.get("makes", match.shape("call")):
                settings["view1"] = settings["makes"]
            inputs = (*inputs, "other")
        if curve is not None:
            settings |= activation(curve, match)
        return Layer(layer.kind, inputs, settings, layer.weights)

    full = f"{name}+{curve.name}" if curve else name
    return Rule(full, result, {**parts, OUT: result}, take_all)


def activation(curve: Curve, match: Match) -> dict[str, Setting]:
    """Return the settings of a layer that computes the activation, alone or fused."""
    values = tuple(float(value) for value in curve.read(match).values())
    if curve.name == "clip" and not values[0] <= values[1]:
        raise Refused(f"it clips to {list(values)}")
    settings: dict[str, Setting] = {"curve": curve.name.removeprefix("nn.")}
    if values:
        settings["curve_values"] = values
    return settings


def _convolution(match: Match, takes: Takes) -> Layer:
    attrs = match.attrs("call")
    shape, output = takes.shape(match, "input"), takes.shape(match, "call")
    match.require_float32("weight")
    rank, groups = len(shape) - 2, int(attrs.groups)
    transposed = match.operator("call").endswith("_transpose")
    _require_layout(attrs, rank, transposed)
    weight = match.weights("weight")
    takes.checked_shape(weight.shape)
    if transposed:
        weight = output_channels_first(weight, groups)
    padding = integers(attrs.padding)
    if min(padding) < 0:
        raise Refused("its padding is negative")
    settings: dict[str, Setting] = {
        "groups": groups,
        "strides": integers(attrs.strides),
        "dilations": integers(attrs.dilation),
        "before": padding[:rank],
        "after": padding[rank:],
    }
    members = (output[1] // groups, shape[1] // groups)
    lead = members if groups == 1 else (groups, *members)
    weights = {"weight": weight.reshape(*lead, *weight.shape[2:])}
    if match.has("bias"):
        weights["bias"] = per_channel(match, "bias", output[1], rank)
    return Layer("deconvolution" if transposed else "convolution", ("input",), settings, weights)


def _require_layout(attrs: Any, rank: int, transposed: bool) -> None:
    data, kernel, turned_kernel = _LAYOUTS[rank]
    wanted = (data, turned_kernel if transposed else kernel)
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != wanted:
        raise Refused(f"its layout is {attrs.data_layout}, {attrs.kernel_layout}")
    if str(attrs.out_layout) not in ("", data):
        raise Refused(f"its result's layout is {attrs.out_layout}")
    if any(integers(getattr(attrs, "output_padding", ()) or ())):
        raise Refused("its output is padded")


def _dense(match: Match, takes: Takes) -> Layer:
    """Multiply every row of the input by the weights: all leading axes are rows."""
    shape = takes.shape(match, "input")
    match.require_float32("weight")
    weight = match.weights("weight")
    if weight.ndim != 2:
        raise Refused(f"its weights have {weight.ndim} axes")
    inner, outer = takes.checked_shape(weight.shape)
    rows = math.prod(shape[:-1])
    weights = {"weight": weight}
    if match.has("bias"):
        weights["bias"] = per_channel(match, "bias", outer, 0)
    settings: dict[str, Setting] = {"view0": (rows, inner), "makes": (rows, outer)}
    return Layer("dense", ("input",), settings, weights)
