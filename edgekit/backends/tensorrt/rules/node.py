"""Helpers of the rules. A layer is an ONNX node.

Its kind is the ONNX operator, or one of `expansions.py` that expands to several nodes. Its settings
are the node's attributes, and a weight `operand1` is a constant as its second input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT
from edgekit.base.arrays import Array

MOST_AXES = 8
Take = Callable[[Match], Layer]


def rule(operator: str, take: Take, arguments: int = 1) -> Rule:
    """Return a rule for one TVM operator, whose arguments are `input`, `input1` and so on."""
    parts = {f"input{place or ''}": wildcard() for place in range(arguments)}
    call = is_op(f"relax.{operator}")(*parts.values())
    return Rule(operator, call, {**parts, OUT: call}, take)


def shape(match: Match, part: str) -> tuple[int, ...]:
    match.require_float32(part)
    return checked(match.shape(part))


def typed(match: Match, part: str, dtype: str) -> tuple[int, ...]:
    """Return the shape of a part that must have the type."""
    if match.dtype(part) != dtype:
        raise Refused(f"its {part} is {match.dtype(part)}, and {dtype} is taken there")
    return checked(match.shape(part))


def checked(extents: Sequence[int]) -> tuple[int, ...]:
    if any(extent < 1 for extent in extents):
        raise Refused(f"its shape {list(extents)} has an axis without elements")
    if len(extents) > MOST_AXES:
        raise Refused(f"TensorRT holds {MOST_AXES} axes, and it has {len(extents)}")
    return tuple(extents)


def node(
    match: Match,
    kind: str,
    parts: Sequence[str] = ("input",),
    operands: Mapping[int, Any] | None = None,
    settings: Mapping[str, Setting] | None = None,
    types: Mapping[str, str] | None = None,
) -> Layer:
    """Return a layer. `parts` are in ONNX's order, constant or computed; `operands` are more
    constants by position: floats, int64 or int8. Parts not named in `types` must be float32."""
    import numpy as np

    wanted = types or {}
    typed(match, OUT, wanted.get(OUT, "float32"))
    weights: dict[str, Array] = {}
    inputs = []
    for place, part in enumerate(parts):
        typed(match, part, wanted.get(part, "float32"))
        array = match.array(part)
        if array is None:
            inputs.append(part)
        else:
            weights[f"operand{place}"] = array
    if not inputs:
        raise Refused("everything that it reads is constant")
    for place, value in (operands or {}).items():
        given = np.asarray(value)
        if given.dtype != np.int8:
            given = given.astype(np.int64 if given.dtype.kind in "iu" else np.float32)
        weights[f"operand{place}"] = given
    return Layer(kind, tuple(inputs), settings or {}, weights)


def dequantised(match: Match) -> Array:
    """Return the floats of a dequantisation's constant `input`, from its `scale` and `zero`."""
    stored, scale, zero = (match.weights(part) for part in ("input", "scale", "zero"))
    if scale.size > 1:
        shape = [1] * stored.ndim
        shape[int(match.attrs(OUT).axis)] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    floats: Array = (stored.astype("int64") - zero).astype("float32") * scale
    return floats.astype("float32")
