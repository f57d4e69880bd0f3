"""Pack the constant weights of int8 convolutions and matrix products into panels at compile time.

Each becomes a kernel of `schedules/packed_int8.py` or, where every channel has its own kernel, one
in float32: sums of so few products of bytes are exact in it, and need no multiplication of int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import shape_of
from edgekit.compiler.rewriting import integers, is_call, operator_of, rewriting
from edgekit.compiler.schedules.dot_products import DotProduct
from edgekit.compiler.schedules.int8 import narrowed
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed_int8 import (
    MOST_EXACT_TAPS,
    Columns,
    PaddedWindow,
    convolution,
    dense,
    depthwise,
    flows,
    pack,
    words_of,
)
from edgekit.compiler.schedules.problem import Window
from edgekit.compiler.schedules.tiles import Tile, choose_pairs, choose_tile

_FUSES_WHAT_FOLLOWS = {"op_pattern": 4}
"""TVM's kOutEWiseFusable: subsequent element-wise operators become part of the kernel."""


@relax.expr_functor.mutator
class _Packer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, machine: Machine, dot: DotProduct) -> None:
        super().__init__(module)
        self._machine = machine
        self._dot = dot

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name not in ("relax.nn.conv2d", "relax.matmul") or 0 in shape_of(call):
            return call
        weight = constant_array(call.args[1])
        if weight is None or weight.dtype != np.int8:
            return call
        if self._dot.kind == "smull" and (weight == -128).any():
            return call
        if str(call.args[0].ty.dtype) != "int8" or str(call.ty.dtype) != "int32":
            return call
        if name == "relax.matmul":
            return self._dense(call, weight)
        return self._convolution(call, weight)

    def _convolution(self, call: Any, weight: np.ndarray) -> Any:
        attrs = call.attrs
        layout = str(attrs.kernel_layout)
        if str(attrs.data_layout) != "NHWC" or sorted(layout) != sorted("HWIO"):
            return call
        if str(attrs.out_layout) not in ("", "NHWC"):
            return call
        kernel = weight.transpose([layout.index(axis) for axis in "HWIO"])
        data, padding, zero_point = self._padded(call.args[0], attrs.padding)
        top, left, bottom, right = padding
        down, across = integers(attrs.strides)
        dilation_y, dilation_x = integers(attrs.dilation)
        window = Window((down, across), (top, left, bottom, right), (dilation_y, dilation_x))
        _, lines, pixels, channels = shape_of(call)
        rows, taps, inputs, _ = kernel.shape
        if int(attrs.groups) != 1:
            if inputs != 1 or rows * taps > MOST_EXACT_TAPS:
                return call
            return self._kernel(
                lambda data, weight: depthwise(data, weight, window, zero_point),
                data,
                (np.ascontiguousarray(kernel[:, :, 0, :].astype("float32")),),
                "int8_depthwise",
            )
        matrix = self._machine.matrix
        pairs = matrix is not None and across == 1 and not flows(inputs, matrix)
        dot = self._for(pixels if pairs else 1)
        pieces, _, words = words_of(taps, inputs, dilation_x, dot)
        tile_of = self._tiles(channels, rows * pieces * words, dot)
        tile = tile_of(1, lines) if pixels == 1 else tile_of(lines, pixels)
        packed = pack(kernel, tile.channels, dilation_x, dot)

        def compute(data: Any, weight: Any, *corrections: Any) -> Any:
            correction = corrections[0] if corrections else None
            padded = PaddedWindow(window, taps, zero_point)
            return convolution(data, weight, correction, padded, Columns(channels, tile_of, dot))

        return self._kernel(compute, data, (packed.packed, packed.corrections), "int8_convolution")

    def _dense(self, call: Any, weight: np.ndarray) -> Any:
        data = call.args[0]
        if weight.ndim != 2 or len(shape_of(data)) < 2:
            return call
        depth, columns = weight.shape
        *lines, pixels, _ = shape_of(data)
        dot = self._for(pixels)
        _, _, words = words_of(1, depth, 1, dot)
        tile_of = self._tiles(columns, words, dot)
        tile = tile_of(int(np.prod(lines)), pixels)
        packed = pack(weight[None, None], tile.channels, 1, dot)

        def compute(data: Any, weight: Any, *corrections: Any) -> Any:
            correction = corrections[0] if corrections else None
            return dense(data, weight, correction, Columns(columns, tile_of, dot))

        return self._kernel(
            compute, data, (packed.packed[:, 0, 0], packed.corrections), "int8_dense"
        )

    def _for(self, pixels: int) -> DotProduct:
        """Return the instruction for lines of so many adjacent pixels."""
        matrix = self._machine.matrix
        return matrix if matrix is not None and pixels >= matrix.pixels else self._dot

    def _tiles(self, channels: int, steps: int, dot: DotProduct) -> Any:
        def tile_of(lines: int, pixels: int) -> Tile:
            if dot.pixels > 1:
                return choose_pairs(pixels, channels, self._machine)
            columns = max(channels, dot.lanes)
            return choose_tile(lines, pixels, columns, steps, narrowed(self._machine))

        return tile_of

    def _padded(self, data: Any, padding: Any) -> tuple[Any, list[int], int]:
        """Return the unpadded data, the padding and its value: the kernel copies the image
        anyway."""
        edges = integers(padding)
        value: Any = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        if any(edges) or not is_call(value, "relax.nn.pad"):
            return data, edges, 0
        widths = integers(value.attrs.pad_width)
        if str(value.attrs.pad_mode) != "constant" or any(widths[:2]) or any(widths[6:]):
            return data, edges, 0
        top, bottom, left, right = widths[2:6]
        return value.args[0], [top, left, bottom, right], int(value.attrs.pad_value)

    def _kernel(self, compute: Any, data: Any, constants: tuple[Any, ...], name: str) -> Any:
        return self.builder_.call_te(
            compute,
            data,
            *(as_constant(constant) for constant in constants if constant is not None),
            primfunc_name_hint=name,
            primfunc_attrs=_FUSES_WHAT_FOLLOWS,
        )


def pack_int8(machine: Machine, dot: DotProduct) -> Any:
    return rewriting("PackInt8", lambda module: _Packer(module, machine, dot))
