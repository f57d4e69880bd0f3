"""Sums, means, products and extremes along axes, and argmax."""

from __future__ import annotations

from collections.abc import Callable

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import leading
from edgekit.backends.ncnn.rules.common import held_shape
from edgekit.backends.rule_tools import OUT, integers, positive, scalar

_OPERATIONS = {"sum": 0, "mean": 3, "max": 4, "min": 5, "prod": 6}
_COUNTED_EXACTLY = 2**24
"""The number of indices that a float32 counts exactly."""


def rules() -> list[Rule]:
    return [
        *(_rule(operator, number) for operator, number in _OPERATIONS.items()),
        _last_largest(),
        _first_largest(),
    ]


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


def _first_largest() -> Rule:
    value = wildcard()
    call = is_op("relax.argmax")(value)

    def take(match: Match) -> Layer:
        return _largest(match, OUT, first=True)

    return Rule("argmax", call, {"input": value, OUT: call}, take)


def _last_largest() -> Rule:
    """Match an argmax of the last largest, which importers write on the reversed axis."""
    value, last = wildcard(), is_const()
    turned = is_op("relax.flip")(value)
    place = is_op("relax.argmax")(turned)
    call = is_op("relax.subtract")(last, place)
    parts = {"input": value, "turned": turned, "place": place, "last": last, OUT: call}

    def take(match: Match) -> Layer:
        axis = _axis(match, "place")
        if axis is None or int(match.attrs("turned").axis) % len(match.shape("input")) != axis:
            raise Refused("it is turned round along another axis than it is searched")
        if scalar(match, "last") != match.shape("input")[axis] - 1:
            raise Refused("it does not count from its end")
        return _largest(match, "place", first=False)

    return Rule("argmax", call, parts, take)


def _axis(match: Match, part: str) -> int | None:
    axis = match.attrs(part).axis
    return None if axis is None else int(axis) % len(match.shape("input"))


def _largest(match: Match, part: str, *, first: bool) -> Layer:
    held_shape(match, "input")
    shape, axis = match.shape("input"), _axis(match, part)
    if match.dtype(OUT) != "int64":
        raise Refused(f"its result is {match.dtype(OUT)}")
    if any(extent != 1 for place, extent in enumerate(shape) if place != axis):
        raise Refused("it is not over a single row, and ncnn's is over all elements")
    count = 1 if axis is None else shape[axis]
    if count > _COUNTED_EXACTLY:
        raise Refused("its row has more places than a float32 tells apart, which ncnn gives")
    settings: dict[str, Setting] = {"row": count, "first": int(first), "view0": (count,)}
    return Layer("ArgMax", ("input",), settings)
