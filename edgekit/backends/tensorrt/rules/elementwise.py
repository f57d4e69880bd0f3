"""Activations and elementwise operators."""

from __future__ import annotations

from functools import partial

from tvm.relax.dpl import wildcard

from edgekit.backends.base import Layer, Refused, Rule
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.curves import CURVES, Curve
from edgekit.backends.rule_tools import OUT, number
from edgekit.backends.tensorrt.rules.node import node, rule, shape

_UNARY = {
    "nn.relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "nn.softplus": "Softplus",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "negative": "Neg",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "sign": "Sign",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "nn.silu": "silu",
    "nn.gelu": "gelu",
    "nn.gelu_tanh": "gelu_tanh",
    "rsqrt": "rsqrt",
    "square": "square",
}
_BINARY = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
}
_CURVES = {"elu": "Elu", "softplus": "Softplus", "hard_sigmoid": "HardSigmoid"}
"""Activations that importers spell out, partly in operators that TensorRT lacks."""


def rules() -> list[Rule]:
    return [
        *(_curve_rule(curve) for curve in CURVES if curve.name in _CURVES),
        *(rule(operator, partial(node, kind=kind)) for operator, kind in _UNARY.items()),
        *(rule(operator, partial(_binary, kind), 2) for operator, kind in _BINARY.items()),
        rule("nn.leakyrelu", _leaky),
        rule("nn.prelu", _prelu, arguments=2),
        rule("clip", _clip, arguments=3),
    ]


def _curve_rule(curve: Curve) -> Rule:
    value = wildcard()
    pattern, parts = curve.write(value)

    def take(match: Match) -> Layer:
        return node(match, _CURVES[curve.name], settings=curve.read(match))

    return Rule(curve.name, pattern, {**parts, "input": value, OUT: pattern}, take)


def _binary(kind: str, match: Match) -> Layer:
    return node(match, kind, ("input", "input1"))


def _leaky(match: Match) -> Layer:
    return node(match, "LeakyRelu", settings={"alpha": float(match.attrs(OUT).alpha)})


def _prelu(match: Match) -> Layer:
    extents, slopes = shape(match, "input"), match.weights("input1").reshape(-1)
    axis = int(match.attrs(OUT).axis) % len(extents)
    if slopes.size not in (1, extents[axis]):
        raise Refused("it has not one slope a channel")
    view = [slopes.size if place == axis else 1 for place in range(len(extents))]
    return node(match, "PRelu", operands={1: slopes.reshape(view)})


def _clip(match: Match) -> Layer:
    _, low, high = match.arguments(OUT)
    bounds = (number(low), number(high))
    if not bounds[0] <= bounds[1]:
        raise Refused(f"it clips to {list(bounds)}")
    return node(match, "Clip", operands={1: bounds[0], 2: bounds[1]})
