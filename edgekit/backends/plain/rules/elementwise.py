"""Elementwise operators on one tensor or two."""

from __future__ import annotations

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.convolution import activation
from edgekit.backends.plain.rules.curves import CURVES, Curve
from edgekit.backends.plain.rules.takes import Takes
from edgekit.backends.rule_tools import OUT


def rules(takes: Takes) -> list[Rule]:
    return [
        *(_curve_rule(curve, takes) for curve in CURVES if curve.name in takes.curves),
        *(_unary_rule(operator, takes) for operator in sorted(takes.unary)),
        *(_binary_rule(operator, takes) for operator in sorted(takes.binary)),
        *([_prelu_rule(takes)] if "prelu" in takes.others else []),
    ]


def _curve_rule(curve: Curve, takes: Takes) -> Rule:
    value = wildcard()
    pattern, parts = curve.write(value)

    def take(match: Match) -> Layer:
        takes.shape(match, "input")
        takes.shape(match, OUT)
        return Layer("curve", ("input",), activation(curve, match))

    return Rule(curve.name, pattern, {**parts, "input": value, OUT: pattern}, take)


def _unary_rule(operator: str, takes: Takes) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value)

    def take(match: Match) -> Layer:
        takes.shape(match, "input")
        return Layer("curve", ("input",), {"curve": operator})

    return Rule(operator, call, {"input": value, OUT: call}, take)


def _binary_rule(operator: str, takes: Takes) -> Rule:
    first, second = wildcard(), wildcard()
    call = is_op(f"relax.{operator}")(first, second)

    def take(match: Match) -> Layer:
        """Give both sides as many axes as the result. At most one is broadcast: the second, if the
        operator commutes."""
        output = takes.shape(match, OUT)
        sides = []
        for part in ("first", "second"):
            shape = takes.shape(match, part)
            sides.append((part, (1,) * (len(output) - len(shape)) + shape))
        commutes = operator not in ("subtract", "divide")
        if sides[0][1] != output and commutes:
            sides.reverse()
        if sides[0][1] != output:
            why = (
                "each side is repeated for the other" if commutes else "its first side is repeated"
            )
            raise Refused(f"{why}, which {takes.library} can't")
        settings: dict[str, Setting] = {"operation": operator}
        weights = {}
        inputs: list[str] = []
        for place, (part, view) in enumerate(sides):
            array = match.array(part)
            if array is None:
                settings[f"view{len(inputs)}"] = view
                inputs.append(part)
            else:
                weights[f"operand{place}"] = array.reshape(view)
        if not inputs:
            raise Refused("both sides are constant")
        return Layer("binary", tuple(inputs), {**settings, "makes": output}, weights)

    return Rule(operator, call, {"first": first, "second": second, OUT: call}, take)


def _prelu_rule(takes: Takes) -> Rule:
    value, slope = wildcard(), is_const()
    call = is_op("relax.nn.prelu")(value, slope)

    def take(match: Match) -> Layer:
        shape = takes.shape(match, "input")
        axis = int(match.attrs(OUT).axis) % len(shape)
        slopes = match.weights("slope").reshape(-1)
        if slopes.size not in (1, shape[axis]):
            raise Refused("it has not one slope a channel")
        view = [1] * len(shape)
        view[axis] = int(slopes.size)
        return Layer("prelu", ("input",), {}, {"weight": slopes.reshape(view)})

    return Rule("nn.prelu", call, {"input": value, "slope": slope, OUT: call}, take)
