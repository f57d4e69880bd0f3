"""Pooling over windows, over whole images, and to a given size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.rules.common import held_shape, require_batch_of_one
from edgekit.backends.rule_tools import OUT, integers, positive, require_layout

_LARGEST, _AVERAGE = 0, 1
_NO_MORE_PADDING = 1
_LAYOUTS = {"1d": "NCW", "2d": "NCHW"}


def rules() -> list[Rule]:
    return [
        *(
            _rule(f"nn.{name}_pool{axes}", _windowed(pooling, axes))
            for name, pooling in (("max", _LARGEST), ("avg", _AVERAGE))
            for axes in _LAYOUTS
        ),
        _rule("nn.adaptive_avg_pool2d", _adaptive),
        _rule("mean", _global(_AVERAGE)),
        _rule("max", _global(_LARGEST)),
    ]


def _rule(operator: str, take: Callable[[Match], Layer]) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value)
    return Rule(operator, call, {"input": value, OUT: call}, take)


def _windowed(pooling: int, axes: str) -> Callable[[Match], Layer]:
    def take(match: Match) -> Layer:
        held_shape(match, "input")
        attrs = match.attrs(OUT)
        require_layout(attrs, _LAYOUTS[axes])
        shape, output = match.shape("input"), match.shape(OUT)
        require_batch_of_one(shape)
        if any(extent != 1 for extent in integers(attrs.dilation)):
            raise Refused("its windows are dilated")
        rank = len(shape) - 2
        settings: dict[str, Setting] = {
            "pooling_type": pooling,
            "pad_mode": _NO_MORE_PADDING,
            **_windows(attrs, shape[2:], output[2:], averages=pooling == _AVERAGE),
        }
        if pooling == _AVERAGE:
            settings["avgpool_count_include_pad"] = int(bool(attrs.count_include_pad))
        return Layer("Pooling1D" if rank == 1 else "Pooling", ("input",), settings)

    return take


def _windows(
    attrs: Any, extents: tuple[int, ...], output: tuple[int, ...], averages: bool
) -> dict[str, Setting]:
    """Return the windows, with the end padding that the last window needs."""
    kernel, strides = integers(attrs.pool_size), integers(attrs.strides)
    padding, rank = integers(attrs.padding), len(extents)
    settings: dict[str, Setting] = {}
    for axis, name in enumerate(("h", "w")[-rank:]):
        before, after = padding[axis], padding[rank + axis]
        reach = (output[axis] - 1) * strides[axis] + kernel[axis] - extents[axis] - before
        if before < 0 or after < 0:
            raise Refused("its padding is negative")
        if max(before, reach) >= kernel[axis]:
            raise Refused("some of its windows lie in the padding alone")
        if averages and bool(attrs.count_include_pad) and reach > after:
            raise Refused("its last windows reach beyond the padding that is counted")
        names = ("pad_top", "pad_bottom") if name == "h" else ("pad_left", "pad_right")
        settings |= {
            f"kernel_{name}": kernel[axis],
            f"stride_{name}": strides[axis],
            names[0]: before,
            names[1]: max(0, reach),
        }
    return settings


def _adaptive(match: Match) -> Layer:
    held_shape(match, "input")
    require_layout(match.attrs(OUT), _LAYOUTS["2d"])
    shape, output = match.shape("input"), match.shape(OUT)
    require_batch_of_one(shape)
    if output[2:] == (1, 1):
        return _everything(_AVERAGE, shape[1])
    settings: dict[str, Setting] = {"pooling_type": _AVERAGE, "adaptive_pooling": 1}
    return Layer("Pooling", ("input",), {**settings, "out_h": output[2], "out_w": output[3]})


def _global(pooling: int) -> Callable[[Match], Layer]:
    """Take the mean or maximum of whole images; reduction.py handles other axes."""

    def take(match: Match) -> Layer:
        held_shape(match, "input")
        held_shape(match, OUT)
        shape, axes = match.shape("input"), match.attrs(OUT).axis
        if axes is None or len(shape) != 4 or positive(integers(axes), 4) != (2, 3):
            raise Refused("it is not over the two last of four axes")
        require_batch_of_one(shape)
        return _everything(pooling, shape[1])

    return take


def _everything(pooling: int, channels: int) -> Layer:
    settings: dict[str, Setting] = {"pooling_type": pooling, "global_pooling": 1}
    return Layer("Pooling", ("input",), {**settings, "makes": (channels,)})
