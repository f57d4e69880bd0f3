"""A matched group of calls between dequantize and quantize, and the context that matchers query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgekit.aot.operators import Image, Lookup, Operator, Window
from edgekit.aot.quantised.graph import Graph, Source, Target, UnfitError, integers, is_call


def to_last(rank: int) -> tuple[int, ...]:
    """Return the axes that move the channels of an image or a sequence last."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Return the axes that move the channels back."""
    return (0, rank - 1, *range(1, rank - 1))


def ordered_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in to_last(len(shape)))


@dataclass(frozen=True, eq=False)
class Group:
    operator: Operator
    inputs: tuple[Source, ...]
    """The sources that are not constant: the operator holds constants."""
    shape: tuple[int, ...]
    """The result's shape in the model."""
    channels_last: bool = False
    """Whether the operator reads and writes channels last where the model has them first."""
    then: Lookup | None = None
    """The conversion to the model's quantisation, where the operator makes another."""
    before: tuple[Lookup | None, ...] = ()
    """The conversion of each input to the operator's quantisation."""


@dataclass(frozen=True, eq=False)
class Context:
    graph: Graph
    litert: bool
    """Whether the model's numbers mean what LiteRT computes; else floats between quantisations."""
    is_last: Callable[[Source], bool]
    """A function that tells whether a source is channels last where the model is channels first."""


Matcher = Callable[[Context, Any, Target], Group | None]


def activation(context: Context, value: Any, target: Target) -> tuple[Any, Target]:
    """Narrow the range of stored values by a fused activation."""
    while True:
        bounds = activation_bounds(context, value)
        if bounds is None:
            return value, target
        inner, low, high = bounds
        value, target = context.graph.value(inner), target.between(low, high)


def activation_bounds(
    context: Context, value: Any
) -> tuple[Any, float | None, float | None] | None:
    """Return the operand of an activation that cuts off, and its limits."""
    graph = context.graph
    if is_call(value, "relax.nn.relu"):
        return value.args[0], 0.0, None
    if is_call(value, "relax.nn.relu6"):
        return value.args[0], 0.0, 6.0
    if is_call(value, "relax.clip"):
        return value.args[0], float(value.args[1].value), float(value.args[2].value)
    if is_call(value, "relax.maximum", "relax.minimum"):
        bound = graph.number(value.args[1])
        if bound is not None:
            is_lower = is_call(value, "relax.maximum")
            return value.args[0], bound if is_lower else None, None if is_lower else bound
    return None


def image_of(shape: tuple[int, ...], channels_first: bool) -> Image:
    """Return the extents of one image, or of a sequence, which is an image of one row."""
    if len(shape) not in (3, 4):
        raise UnfitError(f"it works on {len(shape)} dimensions, integer kernels on images")
    if shape[0] != 1:
        raise UnfitError(f"it works on a batch of {shape[0]}, integer kernels on one image")
    ordered = ordered_last(shape) if channels_first else shape
    height = ordered[1] if len(shape) == 4 else 1
    return Image(height, ordered[-2], ordered[-1])


def window_of(kernel: tuple[int, ...], attrs: Any) -> Window:
    """Return the window of a convolution or of pooling, over an image or a sequence."""
    padding = integers(attrs.padding)
    if len(kernel) == 1:
        left, right = padding if len(padding) == 2 else (padding[0], padding[0])
        return Window(
            (1, kernel[0]),
            (1, int(attrs.strides[0])),
            (1, int(attrs.dilation[0])),
            (0, left, 0, right),
        )
    rows, columns = kernel
    down, right = integers(attrs.strides)
    between_rows, between_columns = integers(attrs.dilation)
    top, left, *rest = padding
    bottom, behind = rest or (top, left)
    return Window(
        (rows, columns), (down, right), (between_rows, between_columns), (top, left, bottom, behind)
    )


def channels_first(layout: str, out_layout: str) -> bool:
    if layout not in _LAYOUTS or out_layout not in ("", layout):
        raise UnfitError(f"its images lie as {layout}")
    return _LAYOUTS[layout]


_LAYOUTS = {"NCHW": True, "NHWC": False, "NCW": True, "NWC": False}


def required(context: Context, expression: Any) -> Source:
    source = context.graph.source(expression)
    if source is None:
        raise UnfitError("what it reads is not quantised to 8 bits with one scale")
    if source.is_constant:
        raise UnfitError("it computes on a constant")
    return source
