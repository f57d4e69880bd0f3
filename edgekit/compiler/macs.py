"""Count a model's multiply-accumulates: those of its convolutions and matrix products.

Counted on Relax after simplification, so that folded operators cost nothing.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax

from edgekit.compiler.loops import times_run


class ShapeDependsOnDataError(ValueError):
    """A tensor has a shape that is known only at run time."""


_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
_TRANSPOSED = tuple(f"{name}_transpose" for name in _CONVOLUTIONS)
_MATMUL = "relax.matmul"


def count_macs(module: Any) -> int:
    """Count all functions of a Relax module whose shapes are known, as often as a loop repeats
    them."""
    times = times_run(module)
    total = 0
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            repeated = times.get(str(variable.name_hint), 1)
            total += repeated * sum(map(macs_of_call, _calls_in(function)))
    return total


def _calls_in(function: Any) -> list[Any]:
    calls: list[Any] = []

    def collect(expression: Any) -> None:
        if isinstance(expression, relax.Call):
            calls.append(expression)

    relax.analysis.post_order_visit(function, collect)
    return calls


def macs_of_call(call: Any) -> int:
    name = str(getattr(call.op, "name", ""))
    if name in _CONVOLUTIONS:
        # Each output element sums over the kernel and the input channels of its group.
        inputs = _channels(call.args[0], call.attrs.data_layout) // int(call.attrs.groups)
        return math.prod(shape_of(call)) * _window(call) * inputs
    if name in _TRANSPOSED:
        # Each input element is spread over the kernel and the output channels of its group.
        layout = call.attrs.out_layout or call.attrs.data_layout
        outputs = _channels(call, layout) // int(call.attrs.groups)
        return math.prod(shape_of(call.args[0])) * _window(call) * outputs
    if name == _MATMUL:
        return math.prod(shape_of(call)) * shape_of(call.args[0])[-1]
    return 0


def _channels(expression: Any, layout: object) -> int:
    return shape_of(expression)[str(layout).index("C")]


def _window(call: Any) -> int:
    """Return the number of elements of the kernel's spatial axes."""
    extents = zip(str(call.attrs.kernel_layout), shape_of(call.args[1]), strict=True)
    return math.prod(extent for letter, extent in extents if letter not in "OI")


def shape_of(expression: Any) -> tuple[int, ...]:
    return shape_of_type(expression.ty)


def shape_of_type(kind: Any) -> tuple[int, ...]:
    """Return the shape; raise ShapeDependsOnDataError where it is known only at run time."""
    extents = getattr(kind, "shape", None)
    if extents is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        raise ShapeDependsOnDataError
    return tuple(int(extent) for extent in extents)
