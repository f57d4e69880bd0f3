"""Sums, means, products and extremes along axes."""

from __future__ import annotations

from collections.abc import Callable

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import leading
from edgekit.backends.ncnn.rules.common import OUT, held_shape, integers, positive

_OPERATIONS = {"sum": 0, "mean": 3, "max": 4, "min": 5, "prod": 6}


def rules() -> list[Rule]:
    return [_rule(operator, number) for operator, number in _OPERATIONS.items()]


def _rule(operator: str, number: int) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value)
    return Rule(operator, call, {"input": value, OUT: call}, _taker(number))


def _taker(number: int) -> Callable[[Match], Layer]:
    def take(match: Match) -> Layer:
        own = held_shape(match, "input")
        held_shape(match, OUT)
        shape, wanted = match.shape("input"), match.attrs(OUT).axis
        full = range(len(shape)) if wanted is None else positive(integers(wanted), len(shape))
        axes = tuple(sorted(axis - leading(shape) for axis in full if axis >= leading(shape)))
        if not axes:
            raise Refused("it reduces the batch axis alone, which ncnn has not")
        kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(own))
        settings: dict[str, Setting] = {"operation": number, "reduce_all": 0, "axes": axes}
        settings |= {"keepdims": 1, "fixbug0": 1, "makes": kept}
        return Layer("Reduction", ("input",), settings)

    return take
