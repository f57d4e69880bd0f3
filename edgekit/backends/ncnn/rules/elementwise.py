"""Elementwise operators on one tensor or two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import Shape, checked, held, leading
from edgekit.backends.ncnn.rules.common import held_shape
from edgekit.backends.rule_tools import OUT

_UNARY = {
    "abs": 0,
    "negative": 1,
    "floor": 2,
    "ceil": 3,
    "square": 4,
    "sqrt": 5,
    "round": 18,
}
"""ncnn's numbers of operators. Its `log` and `rsqrt` give NaN for 0, its `exp` at most 2.4e38."""
_BINARY = {"add": 0, "subtract": 1, "multiply": 2, "divide": 3, "maximum": 4, "minimum": 5}
_SUBTRACTED_FROM = 7
"""The operator number of a subtraction from a constant."""
_DIVISORS = (2.0**-126, 2.0**126)
"""The least and the largest magnitude whose reciprocal is exact enough to divide by: ncnn's vectors
multiply by an approximate reciprocal, which makes NaN of a division by 0."""


def rules() -> list[Rule]:
    return [
        *(_scale_rule(constant_first) for constant_first in (False, True)),
        *(rule for operator in _BINARY for rule in _binary_rules(operator)),
        *(_unary_rule(operator, number) for operator, number in _UNARY.items()),
    ]


def _unary_rule(operator: str, number: int) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value)

    def take(match: Match) -> Layer:
        held_shape(match, "input")
        return Layer("UnaryOp", ("input",), {"op_type": number})

    return Rule(operator, call, {"input": value, OUT: call}, take)


def _scale_rule(constant_first: bool) -> Rule:
    """Match value * scale + bias with one of each per channel: a folded batch norm."""
    value, scale, bias = wildcard(), is_const(), is_const()
    factors = (scale, value) if constant_first else (value, scale)
    product = is_op("relax.multiply")(*factors)
    call = is_op("relax.add")(product, bias)

    def take(match: Match) -> Layer:
        shape = held_shape(match, "input")
        match.require_float32("scale", "bias")
        if held_shape(match, OUT) != shape or match.shape("input")[:1] != (1,) or len(shape) < 2:
            raise Refused("it has no channels behind a batch of 1")
        per_channel = (1, shape[0]) + (1,) * (len(shape) - 1)
        arrays = {name: match.weights(name) for name in ("scale", "bias")}
        for array in arrays.values():
            aligned = (1,) * (len(per_channel) - array.ndim) + array.shape
            if aligned != per_channel:
                raise Refused("it has not one factor and one bias a channel")
        settings: dict[str, Setting] = {"scale_data_size": shape[0], "bias_term": 1}
        weights = {name: array.reshape(-1) for name, array in arrays.items()}
        return Layer("Scale", ("input",), settings, weights)

    parts = {"input": value, "scale": scale, "bias": bias, OUT: call}
    return Rule("scale", call, parts, take)


def _binary_rules(operator: str) -> list[Rule]:
    found = []
    if operator == "divide":
        first, second = wildcard(), wildcard()
        call = is_op("relax.divide")(first, second)
        parts = {"first": first, "second": second, OUT: call}
        return [Rule(operator, call, parts, _quotient)]
    for first, second in ((wildcard(), is_const()), (is_const(), wildcard())):
        call = is_op(f"relax.{operator}")(first, second)
        parts = {"first": first, "second": second, OUT: call}
        found.append(Rule(operator, call, parts, _with_constant(operator)))
    first, second = wildcard(), wildcard()
    call = is_op(f"relax.{operator}")(first, second)
    parts = {"first": first, "second": second, OUT: call}
    found.append(Rule(operator, call, parts, _of_two(operator)))
    return found


def _quotient(match: Match) -> Layer:
    divisor = match.array("second")
    if divisor is None:
        raise Refused("ncnn's vectors divide by a reciprocal, which gives NaN where a divisor is 0")
    least, most = _DIVISORS
    if not ((np.abs(divisor) >= least) & (np.abs(divisor) <= most)).all():
        raise Refused("ncnn's vectors divide by a reciprocal, which some of its divisors lack")
    return _with_constant("divide")(match)


def _of_two(operator: str) -> Callable[[Match], Layer]:
    def take(match: Match) -> Layer:
        held_shape(match, OUT)
        settings: dict[str, Setting] = {"op_type": _BINARY[operator]}
        for place, part in enumerate(("first", "second")):
            held_shape(match, part)
            settings[f"view{place}"] = _aligned(match.shape(part), match.shape(OUT))
        settings["makes"] = held(match.shape(OUT))
        return Layer("BinaryOp", ("first", "second"), settings)

    return take


def _with_constant(operator: str) -> Callable[[Match], Layer]:
    def take(match: Match) -> Layer:
        own = held_shape(match, OUT)
        constant_first = match.array("first") is not None
        data, other = ("second", "first") if constant_first else ("first", "second")
        held_shape(match, data)
        match.require_float32(other)
        constant = match.weights(other)
        number = _BINARY[operator]
        view = _aligned(match.shape(data), match.shape(OUT))
        if constant.size == 1 and view == own:
            is_turned = constant_first and operator == "subtract"
            turned = _SUBTRACTED_FROM if is_turned else number
            value = float(constant.reshape(-1)[0])
            settings: dict[str, Setting] = {"op_type": turned, "with_scalar": 1, "b": value}
            return Layer("BinaryOp", (data,), {**settings, "view0": view, "makes": own})
        place = 0 if constant_first else 1
        weights = {f"operand{place}": constant.reshape(_aligned(constant.shape, match.shape(OUT)))}
        return Layer("BinaryOp", (data,), {"op_type": number, "view0": view, "makes": own}, weights)

    return take


def _aligned(shape: tuple[int, ...], output: tuple[int, ...]) -> Shape:
    """Return a tensor's shape with as many axes as the result, for broadcasting as in numpy."""
    full = (1,) * (len(output) - len(shape)) + shape
    return checked(full[leading(output) :] or (1,))
