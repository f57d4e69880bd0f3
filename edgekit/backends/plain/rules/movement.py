"""Operators that move values, and those that work along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.takes import Takes
from edgekit.backends.rule_tools import OUT, integers, number, positive

_Take = Callable[[Match, Takes], Layer]


def rules(takes: Takes) -> list[Rule]:
    table: tuple[tuple[str, str, int, _Take], ...] = (
        ("view", "reshape", 2, _view),
        ("view", "squeeze", 1, _view),
        ("view", "expand_dims", 1, _view),
        ("view", "flatten", 1, _view),
        ("view", "nn.batch_flatten", 1, _view),
        ("permute", "permute_dims", 1, _permute),
        ("softmax", "nn.softmax", 1, _softmax),
        ("log_softmax", "nn.log_softmax", 1, _softmax),
        ("concat", "concat", 1, _concat),
        ("slice", "split", 1, _split),
        ("slice", "strided_slice", 4, _slice),
        ("slice", "strided_slice", 5, _slice),
        ("pad", "nn.pad", 1, _pad),
    )
    found = [
        _rule(operator, count, take, takes)
        for kind, operator, count, take in table
        if kind in takes.others
    ]
    if "matmul" in takes.others:
        found.append(_product_rule(takes))
    if "layer_norm" in takes.others:
        found.append(_layer_norm_rule(takes))
    return found


def _rule(operator: str, arguments: int, take: _Take, takes: Takes) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value, *(wildcard() for _ in range(arguments - 1)))
    return Rule(operator, call, {"input": value, OUT: call}, lambda match: take(match, takes))


def _view(match: Match, takes: Takes) -> Layer:
    takes.shape(match, "input")
    takes.shape(match, OUT)
    return Layer("view", ("input",))


def _permute(match: Match, takes: Takes) -> Layer:
    shape = takes.shape(match, "input")
    axes = match.attrs(OUT).axes
    order = tuple(reversed(range(len(shape)))) if axes is None else integers(axes)
    return Layer("permute", ("input",), {"axes": positive(order, len(shape))})


def _softmax(match: Match, takes: Takes) -> Layer:
    shape = takes.shape(match, "input")
    kind = match.operator(OUT).removeprefix("nn.")
    return Layer(kind, ("input",), {"axis": int(match.attrs(OUT).axis) % len(shape)})


def _concat(match: Match, takes: Takes) -> Layer:
    shape, wanted = takes.shape(match, OUT), match.attrs(OUT).axis
    for field in match.value("input").fields:
        if str(field.ty.dtype) != "float32":
            raise Refused("one of its inputs is not float32")
        takes.checked_shape([int(extent) for extent in field.ty.shape])
    axis = 0 if wanted is None else int(wanted) % len(shape)
    parts = match.fields("input")
    if len(parts) == 1:
        return Layer("view", parts)
    return Layer("concat", parts, {"axis": axis})


def _split(match: Match, takes: Takes) -> Layer:
    shape = takes.shape(match, "input")
    axis = int(match.attrs(OUT).axis) % len(shape)
    starts, start = [], 0
    for kind in match.expression(OUT).ty.fields:
        starts += [start if place == axis else 0 for place in range(len(shape))]
        start += takes.checked_shape([int(extent) for extent in kind.shape])[axis]
    return Layer("slice", ("input",), {"starts": tuple(starts)})


def _slice(match: Match, takes: Takes) -> Layer:
    shape, output = takes.shape(match, "input"), takes.shape(match, OUT)
    arguments = match.arguments(OUT)
    axes, wanted = integers(arguments[1]), integers(arguments[2])
    if len(arguments) > 4 and any(step != 1 for step in integers(arguments[4])):
        raise Refused(f"it takes every so many elements, which {takes.library} can't")
    starts = [0] * len(shape)
    for axis, start in zip(axes, wanted, strict=True):
        extent = shape[axis % len(shape)]
        first = min(max(start + extent if start < 0 else start, 0), extent)
        starts[axis % len(shape)] = min(first, extent - output[axis % len(shape)])
    return Layer("slice", ("input",), {"starts": tuple(starts)})


def _pad(match: Match, takes: Takes) -> Layer:
    shape, attrs = takes.shape(match, "input"), match.attrs(OUT)
    takes.shape(match, OUT)
    if str(attrs.pad_mode) != "constant":
        raise Refused(f"its padding is by {attrs.pad_mode}")
    widths = integers(attrs.pad_width)
    if min(widths) < 0:
        raise Refused("its padding is negative")
    before = tuple(widths[2 * axis] for axis in range(len(shape)))
    settings: dict[str, Setting] = {"before": before, "value": number(attrs.pad_value)}
    return Layer("pad", ("input",), settings)


def _product_rule(takes: Takes) -> Rule:
    first, second = wildcard(), wildcard()
    call = is_op("relax.matmul")(first, second)

    def take(match: Match) -> Layer:
        """Multiply two stacks of matrices; a shorter one is repeated."""
        takes.shape(match, OUT)
        shapes = {part: takes.shape(match, part) for part in ("first", "second")}
        if min(map(len, shapes.values())) < 2:
            raise Refused("one side is a vector")
        rank = max(map(len, shapes.values()))
        settings: dict[str, Setting] = {}
        weights = {}
        inputs: list[str] = []
        for place, (part, shape) in enumerate(shapes.items()):
            view = (1,) * (rank - len(shape)) + shape
            array = match.array(part)
            if array is None:
                settings[f"view{len(inputs)}"] = view
                inputs.append(part)
            else:
                weights[f"operand{place}"] = array.reshape(view)
        if not inputs:
            raise Refused("both sides are constant")
        return Layer("matmul", tuple(inputs), settings, weights)

    return Rule("matmul", call, {"first": first, "second": second, OUT: call}, take)


def _layer_norm_rule(takes: Takes) -> Rule:
    value, gamma, beta = wildcard(), is_const(), is_const()
    call = is_op("relax.nn.layer_norm")(value, gamma, beta)

    def take(match: Match) -> Layer:
        attrs, shape = match.attrs(OUT), takes.shape(match, "input")
        axes = positive(integers(attrs.axes), len(shape))
        first = len(shape) - len(axes)
        if tuple(sorted(axes)) != tuple(range(first, len(shape))):
            raise Refused("it is not over the last axes")
        size = math.prod(shape[first:])
        view = (math.prod(shape[:first]), size)
        weights = {part: match.weights(part).reshape(-1) for part in ("gamma", "beta")}
        if any(array.size != size for array in weights.values()):
            raise Refused("it has not one factor and one bias an element")
        settings: dict[str, Setting] = {"epsilon": float(attrs.epsilon)}
        return Layer("layer_norm", ("input",), {**settings, "view0": view, "makes": view}, weights)

    return Rule(
        "nn.layer_norm", call, {"input": value, "gamma": gamma, "beta": beta, OUT: call}, take
    )
