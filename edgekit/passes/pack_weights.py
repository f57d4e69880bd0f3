"""Convolutions and matrix products with constant weights read them from panels, packed now.

Each becomes a kernel of `schedules/packed.py`, with weights in the order in which its schedule
reads them; what has no constant weights stays as it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgekit.macs import shape_of
from edgekit.schedules.machine import Machine
from edgekit.schedules.packed import (
    Window,
    convolution,
    dense,
    depthwise,
    pack_columns,
)
from edgekit.schedules.tiles import Tile, choose_tile
from edgekit.tvm_compat import constant_array

_FUSES_WHAT_FOLLOWS = {"op_pattern": 4}
"""TVM's kOutEWiseFusable: element-wise operators after the kernel become part of it."""


@relax.expr_functor.mutator
class _Packer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, machine: Machine) -> None:
        super().__init__(module)
        self._machine = machine

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = str(getattr(call.op, "name", ""))
        if name == "relax.nn.conv2d":
            return self._convolution(call)
        if name == "relax.matmul":
            return self._dense(call)
        return call

    def _convolution(self, call: Any) -> Any:
        attrs = call.attrs
        weight = constant_array(call.args[1])
        if weight is None or (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NHWC", "HWIO"):
            return call
        window = Window(
            _pair(attrs.strides), tuple(int(edge) for edge in attrs.padding), _pair(attrs.dilation)
        )
        groups, channels = int(attrs.groups), weight.shape[3]
        data = call.args[0]
        if groups == channels == shape_of(data)[3] and groups > 1:
            kernel = relax.const(np.ascontiguousarray(weight[:, :, 0, :]))
            return self._kernel(
                lambda d, w: depthwise(d, w, window), data, kernel, "depthwise_convolution"
            )

        def tile_of(lines: int, pixels: int) -> Tile:
            columns, depth = channels // groups, math.prod(weight.shape[:3])
            whole = groups > 1
            return choose_tile(lines, pixels, columns, depth, self._machine, whole=whole)

        _, lines, pixels, _ = shape_of(call)
        tile = tile_of(1, lines) if pixels == 1 else tile_of(lines, pixels)
        packed = relax.const(pack_columns(weight, tile.channels))
        return self._kernel(
            lambda d, w: convolution(d, w, window, groups, channels, tile_of),
            data,
            packed,
            "convolution",
        )

    def _dense(self, call: Any) -> Any:
        weight = constant_array(call.args[1])
        data = call.args[0]
        if weight is None or weight.ndim != 2 or weight.dtype != np.float32:
            return call
        if len(shape_of(data)) < 2 or str(data.ty.dtype) != "float32" or 0 in shape_of(call):
            return call
        columns = weight.shape[1]

        def tile_of(lines: int, pixels: int) -> Tile:
            return choose_tile(lines, pixels, columns, len(weight), self._machine)

        *lines, pixels, _ = shape_of(data)
        packed = relax.const(pack_columns(weight, tile_of(math.prod(lines), pixels).channels))
        return self._kernel(lambda d, w: dense(d, w, columns, tile_of), data, packed, "dense")

    def _kernel(self, compute: Any, data: Any, weight: Any, name: str) -> Any:
        return self.builder_.call_te(
            compute, data, weight, primfunc_name_hint=name, primfunc_attrs=_FUSES_WHAT_FOLLOWS
        )


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(value) for value in values)
    return first, second


@tvm.transform.module_pass(opt_level=0, name="edgekit.PackWeights")
class PackWeights:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        packer = _Packer(module, self._machine)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                packer.builder_.update_func(variable, packer.visit_expr(function))
        return packer.builder_.get()
