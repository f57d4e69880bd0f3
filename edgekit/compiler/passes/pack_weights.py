"""Pack the constant weights of convolutions and matrix products into panels at compile time.

Each becomes a kernel of `schedules/packed.py`, with weights in the order in which its schedule
reads them. Operators without constant weights are unchanged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import shape_of
from edgekit.compiler.passes.channels import TO_LAST
from edgekit.compiler.rewriting import integers, is_call, operator_of, rewriting
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import (
    along,
    convolution,
    dense,
    dense_along,
    depthwise,
    few,
    pack_columns,
)
from edgekit.compiler.schedules.packed_winograd import pack_kernel, winograd
from edgekit.compiler.schedules.problem import Window, convolution_problem, dense_problem
from edgekit.compiler.schedules.tiles import Tile, choose_tile
from edgekit.compiler.schedules.winograd import panel_width, pays

_FUSES_WHAT_FOLLOWS = {"op_pattern": 4}
"""TVM's kOutEWiseFusable: subsequent element-wise operators become part of the kernel."""


@relax.expr_functor.mutator
class _Packer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, machine: Machine, choices: Choices) -> None:
        super().__init__(module)
        self._machine = machine
        self._choices = choices

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name == "relax.nn.conv2d":
            return self._convolution(call)
        if name == "relax.nn.conv2d_transpose":
            return self._transposed(call)
        if name == "relax.matmul":
            return self._dense(call)
        return call

    def _convolution(self, call: Any) -> Any:
        attrs = call.attrs
        weight = constant_array(call.args[1])
        layout = str(attrs.kernel_layout)
        if weight is None or str(attrs.data_layout) != "NHWC" or sorted(layout) != sorted("HWIO"):
            return call
        if weight.dtype != np.float32 or str(call.args[0].ty.dtype) != "float32":
            return call
        if 0 in shape_of(call) or str(attrs.out_layout) not in ("", "NHWC"):
            return call
        weight = weight.transpose([layout.index(axis) for axis in "HWIO"])
        data, channels_first = self._as_it_lies(call.args[0])
        window = Window(
            _pair(attrs.strides),
            _edges(attrs.padding),
            _pair(attrs.dilation),
            channels_first=channels_first,
        )
        groups, channels = int(attrs.groups), weight.shape[3]
        if groups == channels == shape_of(call.args[0])[3] and groups > 1:
            kernel = as_constant(np.ascontiguousarray(weight[:, :, 0, :]))
            return self._kernel(
                lambda d, w: depthwise(d, w, window), data, kernel, "depthwise_convolution"
            )
        _, lines, pixels, _ = shape_of(call)
        size, inputs = (lines, pixels), weight.shape[2]
        if (
            weight.shape[:2] == (3, 3)
            and groups == 1
            and pays(size, inputs, channels, window, self._machine)
        ):
            width = panel_width(size, inputs, channels, self._machine)
            kernel = as_constant(pack_kernel(weight, width))
            return self._kernel(lambda d, w: winograd(d, w, window), data, kernel, "winograd")
        return self._product(data, weight, window, groups, shape_of(call))

    def _transposed(self, call: Any) -> Any:
        """Return a convolution over the input with zeros between its pixels, kernel reversed."""
        attrs = call.attrs
        weight = constant_array(call.args[1])
        if weight is None or str(attrs.data_layout) != "NHWC":
            return call
        dilation = _pair(attrs.dilation)
        turned = weight[:, :, ::-1, ::-1].transpose(2, 3, 0, 1)
        reach = [(taps - 1) * d for taps, d in zip(turned.shape[:2], dilation, strict=True)]
        top, left, bottom, right = _edges(attrs.padding)
        more_y, more_x = _pair(attrs.output_padding)
        padding = (
            *(reach[0] - top, reach[1] - left),
            *(reach[0] - bottom + more_y, reach[1] - right + more_x),
        )
        window = Window((1, 1), padding, dilation, spread=_pair(attrs.strides))
        return self._product(call.args[0], turned, window, 1, shape_of(call))

    def _product(
        self, data: Any, weight: np.ndarray, window: Window, groups: int, shape: tuple[int, ...]
    ) -> Any:
        _, lines, pixels, channels = shape
        if groups == 1 and few(channels, weight.shape[2], self._machine.lanes):
            kernel = as_constant(np.ascontiguousarray(weight.transpose(3, 0, 1, 2)))
            return self._kernel(lambda d, w: along(d, w, window), data, kernel, "convolution")
        problem = convolution_problem(shape_of(data), weight.shape[:3], window, groups, channels)
        measured = self._choices.tile_of(problem.key)

        def tile_of(lines: int, pixels: int) -> Tile:
            if measured is not None:
                return measured
            columns, depth = channels // groups, math.prod(weight.shape[:3])
            whole = groups > 1
            return choose_tile(lines, pixels, columns, depth, self._machine, whole=whole)

        tile = tile_of(1, lines) if pixels == 1 else tile_of(lines, pixels)
        return self._kernel(
            lambda d, w: convolution(d, w, window, groups, channels, tile_of),
            data,
            as_constant(pack_columns(weight, tile.channels)),
            "convolution",
        )

    def _as_it_lies(self, data: Any) -> tuple[Any, bool]:
        """Return the operand of a `permute_dims` to channels last where that is the network's
        input: the kernel copies it anyway."""
        value: Any = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        if is_call(value, "relax.permute_dims") and integers(value.attrs.axes or ()) == [*TO_LAST]:
            source = value.args[0]
            if isinstance(source, relax.Var) and self.lookup_binding(source) is None:
                return source, True
        return data, False

    def _dense(self, call: Any) -> Any:
        weight = constant_array(call.args[1])
        data = call.args[0]
        if weight is None or weight.ndim != 2 or weight.dtype != np.float32:
            return call
        if len(shape_of(data)) < 2 or str(data.ty.dtype) != "float32" or 0 in shape_of(call):
            return call
        columns = weight.shape[1]
        if few(columns, len(weight), self._machine.lanes):
            turned = as_constant(np.ascontiguousarray(weight.T))
            return self._kernel(dense_along, data, turned, "dense")
        problem = dense_problem(shape_of(data), len(weight), columns)
        measured = self._choices.tile_of(problem.key)

        def tile_of(lines: int, pixels: int) -> Tile:
            if measured is not None:
                return measured
            return choose_tile(lines, pixels, columns, len(weight), self._machine)

        *lines, pixels, _ = shape_of(data)
        packed = as_constant(pack_columns(weight, tile_of(math.prod(lines), pixels).channels))
        return self._kernel(lambda d, w: dense(d, w, columns, tile_of), data, packed, "dense")

    def _kernel(self, compute: Any, data: Any, weight: Any, name: str) -> Any:
        return self.builder_.call_te(
            compute, data, weight, primfunc_name_hint=name, primfunc_attrs=_FUSES_WHAT_FOLLOWS
        )


def _edges(values: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = integers(values)
    return top, left, bottom, right


def _pair(values: Any) -> tuple[int, int]:
    first, second = integers(values)
    return first, second


def pack_weights(machine: Machine, choices: Choices = NO_CHOICES) -> Any:
    return rewriting("PackWeights", lambda module: _Packer(module, machine, choices))
