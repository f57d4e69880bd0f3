"""The operators that Tern takes, and why it refuses others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT, integers, per_channel
from edgekit_tern.npu import Npu, aligned

Take = Callable[[Match], Layer]


def all_rules(npu: Npu) -> list[Rule]:
    """Return the rules, those with a ReLU first: they are longer."""
    kinds = (_product("nn.conv2d", _convolution), _product("matmul", _dense), _sum())
    found = [
        _rule(name + ("+relu" if relu else ""), pattern, parts, take, npu, relu)
        for relu in (True, False)
        for name, pattern, parts, take in kinds
    ]
    data, shape = wildcard(), wildcard()
    view = is_op("relax.reshape")(data, shape)
    return [
        *found,
        _rule("relu", data, {"a": data}, _moved, npu, True),
        _rule("view", view, {"a": data, "call": view}, _moved, npu, False),
    ]


def _rule(name: str, pattern: Any, parts: dict[str, Any], take: Take, npu: Npu, relu: bool) -> Rule:
    result = is_op("relax.nn.relu")(pattern) if relu else pattern

    def take_whole(match: Match) -> Layer:
        made = take(match)
        match.require_float32(*made.inputs, OUT)
        layer = Layer(made.kind, made.inputs, {**made.settings, "relu": int(relu)}, made.weights)
        tensors = [4 * math.prod(match.shape(part)) for part in (*layer.inputs, OUT)]
        constants = [array.nbytes for array in layer.weights.values()]
        needed = sum(map(aligned, [*tensors, *constants]))
        if needed > npu.half:
            raise Refused(
                f"it needs {needed / 1024:,.0f} KiB at once, and half the SRAM has "
                f"{npu.half // 1024:,}"
            )
        return layer

    return Rule(name, result, {**parts, OUT: result}, take_whole)


def _product(operator: str, take: Take) -> tuple[str, Any, dict[str, Any], Take]:
    data, weight, bias = wildcard(), is_const(), is_const()
    call = is_op(f"relax.{operator}")(data, weight)
    result = is_op("relax.add")(call, bias) | is_op("relax.add")(bias, call) | call
    parts = {"data": data, "weight": weight, "bias": bias, "call": call}
    return operator.removeprefix("nn."), result, parts, take


def _sum() -> tuple[str, Any, dict[str, Any], Take]:
    a, b = wildcard(), wildcard()
    return "add", is_op("relax.add")(a, b), {"a": a, "b": b}, _added


def _convolution(match: Match) -> Layer:
    attrs = match.attrs("call")
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if layouts not in (("NCHW", "OIHW", ""), ("NCHW", "OIHW", "NCHW")):
        raise Refused(f"its layout is {attrs.data_layout}, and Tern takes NCHW")
    padding = integers(attrs.padding)
    if min(padding) < 0:
        raise Refused("its padding is negative")
    match.require_float32("weight")
    weight = match.weights("weight")
    n, c, h, w = match.shape("data")
    oc, oh, ow = match.shape("call")[1:]
    numbers = (*(n, c, h, w, oc, oh, ow), *weight.shape[2:], *integers(attrs.strides))
    numbers += (*padding[:2], *integers(attrs.dilation), int(attrs.groups))
    return Layer(
        "conv", ("data",), {"numbers": numbers}, _weights(match, weight, channels=oc, behind=2)
    )


def _dense(match: Match) -> Layer:
    """Return a product as a convolution of images with one pixel: a row is an image."""
    match.require_float32("weight")
    weight = match.weights("weight")
    *lead, inner = match.shape("data")
    if weight.ndim != 2:
        raise Refused(f"its weights have {weight.ndim} axes")
    outer = weight.shape[1]
    numbers = (math.prod(lead), inner, 1, 1, outer, *(1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1))
    turned = np.ascontiguousarray(weight.T)
    return Layer(
        "conv", ("data",), {"numbers": numbers}, _weights(match, turned, channels=outer, behind=0)
    )


def _weights(match: Match, weight: Any, *, channels: int, behind: int) -> dict[str, Any]:
    bias = np.zeros(channels, "float32")
    if match.has("bias"):
        match.require_float32("bias")
        bias = per_channel(match, "bias", channels, behind)
    return {"weight": weight, "bias": bias}


def _added(match: Match) -> Layer:
    if match.shape("a") != match.shape("b"):
        raise Refused("its sides have different shapes")
    return Layer("add", ("a", "b"))


def _moved(match: Match) -> Layer:
    return Layer("move", ("a",))
