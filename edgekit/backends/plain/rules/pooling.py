"""Pooling over windows and over whole images, and reductions along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.takes import Takes
from edgekit.backends.rule_tools import OUT, integers, positive, require_layout

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_RANKS = (1, 2)
"""The numbers of image axes that all of these libraries pool."""
_Take = Callable[[Match, Takes], Layer]


def rules(takes: Takes) -> list[Rule]:
    return [
        *(_rule(f"nn.max_pool{axes}d", windowed, takes) for axes in _RANKS),
        *(_rule(f"nn.avg_pool{axes}d", windowed, takes) for axes in _RANKS),
        _rule("nn.adaptive_avg_pool2d", _adaptive, takes),
        _rule("mean", _whole_images, takes),
        *(_rule(operator, _reduction, takes) for operator in sorted(takes.reductions)),
    ]


def _rule(operator: str, take: _Take, takes: Takes) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value)
    return Rule(operator, call, {"input": value, OUT: call}, lambda match: take(match, takes))


def windowed(match: Match, takes: Takes) -> Layer:
    attrs = match.attrs(OUT)
    shape, output = takes.shape(match, "input"), takes.shape(match, OUT)
    require_layout(attrs, _LAYOUTS[len(shape) - 2])
    if any(extent != 1 for extent in integers(attrs.dilation)):
        raise Refused("its windows are dilated")
    averages = "avg" in match.operator(OUT)
    counts = averages and bool(attrs.count_include_pad)
    operation = "max" if not averages else "average_with_padding" if counts else "average"
    return Layer("pooling", ("input",), _windows(attrs, shape[2:], output[2:], operation))


def _windows(
    attrs: Any, extents: tuple[int, ...], output: tuple[int, ...], operation: str
) -> dict[str, Setting]:
    """Return the windows, with the end padding that the last window needs."""
    kernel, strides = integers(attrs.pool_size), integers(attrs.strides)
    padding, rank = integers(attrs.padding), len(extents)
    after = []
    for axis, extent in enumerate(extents):
        reach = (output[axis] - 1) * strides[axis] + kernel[axis] - extent - padding[axis]
        if min(padding[axis], padding[rank + axis]) < 0:
            raise Refused("its padding is negative")
        if max(padding[axis], reach) >= kernel[axis]:
            raise Refused("some of its windows lie in the padding alone")
        if operation == "average_with_padding" and reach > padding[rank + axis]:
            raise Refused("its last windows reach beyond the padding that is counted")
        after.append(max(0, reach))
    return {
        "operation": operation,
        "kernel": kernel,
        "strides": strides,
        "before": padding[:rank],
        "after": tuple(after),
    }


def _adaptive(match: Match, takes: Takes) -> Layer:
    shape, output = takes.shape(match, "input"), takes.shape(match, OUT)
    require_layout(match.attrs(OUT), _LAYOUTS[2])
    if any(extent % wanted for extent, wanted in zip(shape[2:], output[2:], strict=True)):
        raise Refused("its windows are of different sizes")
    kernel = tuple(extent // wanted for extent, wanted in zip(shape[2:], output[2:], strict=True))
    return Layer("pooling", ("input",), _even(kernel))


def _even(kernel: tuple[int, ...]) -> dict[str, Setting]:
    """Return windows that tile the input."""
    none = (0,) * len(kernel)
    sizes = {"kernel": kernel, "strides": kernel, "before": none, "after": none}
    return {"operation": "average", **sizes}


def _whole_images(match: Match, takes: Takes) -> Layer:
    shape, axes = takes.shape(match, "input"), match.attrs(OUT).axis
    takes.shape(match, OUT)
    rank = len(shape)
    wanted = tuple(range(2, rank))
    if axes is None or rank not in (3, 4) or positive(integers(axes), rank) != wanted:
        raise Refused("it is not over all axes behind the channels")
    made = (*shape[:2], *(1 for _ in wanted))
    return Layer("pooling", ("input",), {**_even(shape[2:]), "makes": made})


def _reduction(match: Match, takes: Takes) -> Layer:
    shape, wanted = takes.shape(match, "input"), match.attrs(OUT).axis
    takes.shape(match, OUT)
    rank = len(shape)
    axes = tuple(range(rank)) if wanted is None else positive(integers(wanted), rank)
    made = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    if made == shape:
        return Layer("view", ("input",))
    settings: dict[str, Setting] = {"operation": match.operator(OUT), "makes": made}
    return Layer("reduction", ("input",), settings)
