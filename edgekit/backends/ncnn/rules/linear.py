"""Matrix products, with constant weights or of two tensors."""

from __future__ import annotations

import math

import numpy as np
from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import checked
from edgekit.backends.ncnn.rules.common import held_shape
from edgekit.backends.ncnn.rules.convolution import rules_with_activation
from edgekit.backends.rule_tools import OUT, per_channel
from edgekit.base.arrays import Array


def rules() -> list[Rule]:
    return [*rules_with_activation("matmul", "dense", _dense), *_products()]


def _dense(match: Match) -> Layer:
    """Multiply every row of the input by the weights: all leading axes are rows."""
    held_shape(match, "input")
    match.require_float32("weight")
    shape, weight = match.shape("input"), match.weights("weight")
    if weight.ndim != 2:
        raise Refused(f"its weights have {weight.ndim} axes")
    inner, outer = weight.shape
    rows = math.prod(shape[:-1])
    weights = {"weight": np.ascontiguousarray(weight.T)}
    if match.has("bias"):
        weights["bias"] = per_channel(match, "bias", outer, 0)
    settings: dict[str, Setting] = {
        "num_output": outer,
        "weight_data_size": inner * outer,
        "bias_term": int("bias" in weights),
        "view0": (inner,) if rows == 1 else checked((rows, inner)),
        "makes": (outer,) if rows == 1 else checked((rows, outer)),
    }
    return Layer("InnerProduct", ("input",), settings, weights)


def _products() -> list[Rule]:
    first, second = wildcard(), wildcard()
    call = is_op("relax.matmul")(first, second)
    constant, data = is_const(), wildcard()
    turned = is_op("relax.matmul")(constant, data)
    return [
        Rule("matmul", call, {"first": first, "second": second, OUT: call}, _product),
        Rule("matmul", turned, {"first": constant, "second": data, OUT: turned}, _product),
    ]


def _product(match: Match) -> Layer:
    """Multiply two equally high stacks of matrices."""
    held_shape(match, OUT)
    shapes = [match.shape(part) for part in ("first", "second")]
    match.require_float32("first", "second")
    if min(map(len, shapes)) < 2:
        raise Refused("one side is a vector")
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    if full[0][:-2] != full[1][:-2]:
        raise Refused("one side's stack of matrices is repeated for the other's")
    stack = math.prod(full[0][:-2])
    lead = () if stack == 1 else (stack,)
    views = [checked((*lead, *shape[-2:])) for shape in full]
    inputs: list[str] = []
    settings: dict[str, Setting] = {"makes": (*lead, views[0][-2], views[1][-1])}
    weights: dict[str, Array] = {}
    for place, part in enumerate(("first", "second")):
        array = match.array(part)
        if array is None:
            settings[f"view{len(inputs)}"] = views[place]
            inputs.append(part)
        else:
            weights[f"operand{place}"] = array.reshape(views[place])
    if not inputs:
        raise Refused("both sides are constant")
    return Layer("MatMul", tuple(inputs), settings, weights)
