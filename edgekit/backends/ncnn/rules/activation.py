"""Activation functions, as layers of their own and fused into other layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.rules.common import held_shape
from edgekit.backends.plain.rules.curves import CURVES, Curve
from edgekit.backends.rule_tools import OUT


@dataclass(frozen=True)
class Kind:
    """ncnn's implementation of an activation function."""

    layer: str
    fused: int = 0
    """The number of the activation fused into another layer; 0 if it cannot be fused."""
    settings: Mapping[str, Setting] = field(default_factory=dict)


KINDS = {
    "mish": Kind("Mish", 5),
    "hard_swish": Kind("HardSwish", 6),
    "hard_swish_6": Kind("HardSwish", 6),
    "swish": Kind("Swish"),
    "elu": Kind("ELU"),
    "hard_sigmoid": Kind("HardSigmoid"),
    "nn.relu": Kind("ReLU", 1),
    "nn.leakyrelu": Kind("ReLU", 2),
    "clip": Kind("Clip", 3),
    "sigmoid": Kind("Sigmoid", 4),
    "tanh": Kind("TanH"),
    "nn.gelu": Kind("GELU", settings={"fast_gelu": 0}),
    "nn.gelu_tanh": Kind("GELU", settings={"fast_gelu": 1}),
    "erf": Kind("Erf"),
}

"""ncnn's Softplus is not among them: it gives infinity above 88."""
_TAKEN = tuple(curve for curve in CURVES if curve.name in KINDS)
FUSED = tuple(curve for curve in _TAKEN if KINDS[curve.name].fused)


def fused_settings(curve: Curve, match: Match) -> Mapping[str, Setting]:
    """Return the settings that fuse the activation into another layer."""
    values = tuple(float(value) for value in curve.read(match).values())
    settings: dict[str, Setting] = {"activation_type": KINDS[curve.name].fused}
    if values:
        settings["activation_params"] = values
    return settings


def rules() -> list[Rule]:
    return [_rule(curve) for curve in _TAKEN] + [_prelu_rule()]


def _rule(curve: Curve) -> Rule:
    value = wildcard()
    pattern, parts = curve.write(value)

    def take(match: Match) -> Layer:
        held_shape(match, "input")
        held_shape(match, OUT)
        kind = KINDS[curve.name]
        return Layer(kind.layer, ("input",), {**curve.read(match), **kind.settings})

    return Rule(curve.name, pattern, {**parts, "input": value, OUT: pattern}, take)


def _prelu_rule() -> Rule:
    value, slope = wildcard(), is_const()
    call = is_op("relax.nn.prelu")(value, slope)

    def take(match: Match) -> Layer:
        shape = held_shape(match, "input")
        full = match.shape("input")
        slopes = match.weights("slope").reshape(-1)
        if len(full) < 2 or full[0] != 1 or int(match.attrs(OUT).axis) != 1:
            raise Refused("its slopes do not lie along the axis behind a batch of 1")
        if slopes.size not in (1, shape[0]):
            raise Refused("it has not one slope a channel")
        return Layer("PReLU", ("input",), {"num_slope": int(slopes.size)}, {"slope": slopes})

    return Rule("nn.prelu", call, {"input": value, "slope": slope, OUT: call}, take)
