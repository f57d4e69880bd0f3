"""The two directions of `channels.py`: first for libraries of backends, last for edgekit's kernels.

Each adds the operators that only its models have: PReLU as TVM's TFLite importer writes it, and
transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import shape_of
from edgekit.compiler.passes.channels import (
    EITHER_WAY,
    ONLY_FIRST,
    ONLY_LAST,
    TO_FIRST,
    TO_LAST,
    WINDOWS,
    Direction,
    Mover,
    channels,
    for_each,
    is_anchor,
    reshape,
)
from edgekit.compiler.rewriting import has_known_shape, integers, is_call


def channels_first() -> Any:
    """Return the pass for libraries: TFLite models arrive channels last."""
    return channels(_FIRST, "ChannelsFirst")


def channels_last(*, only_plain: bool = False) -> Any:
    """Return the pass for edgekit's kernels. `only_plain` makes every transposed convolution a
    plain one, for compilers without a loop nest for transposed ones."""
    return channels(_LAST_AND_PLAIN if only_plain else _LAST, "ChannelsLast")


def _flat_prelu(self: Mover, call: Any) -> Any | None:
    """Convert PReLU as TVM's TFLite importer writes it: flattened, with a slope per element."""
    prelu = self.value(call.args[0])
    if not is_call(prelu, "relax.nn.prelu"):
        return reshape(self, call)
    flat = self.value(prelu.args[0])
    if not is_call(flat, "relax.reshape") or not has_known_shape(flat.args[0]):
        return None
    data, shape = self.known(flat.args[0]), shape_of(call)
    if data is None or shape_of(flat.args[0]) != shape:
        return None
    slopes = _slopes(self, prelu.args[1], shape)
    return None if slopes is None else self.result(relax.op.nn.prelu(data, slopes, axis=1))


def _slopes(self: Mover, expression: Any, shape: tuple[int, ...]) -> Any | None:
    """Return one slope per channel where all pixels have the same slopes."""
    values = constant_array(expression)
    if values is None:
        row = self.value(expression)
        if not is_call(row, "relax.reshape"):
            return None
        whole = self.value(row.args[0])
        if not is_call(whole, "relax.broadcast_to") or shape_of(whole) != shape:
            return None
        values = constant_array(whole.args[0])
        if values is None or values.size != shape[-1] or values.shape[-1:] != shape[-1:]:
            return None
    by_pixel = values.reshape(-1, shape[-1])
    return None if (by_pixel != by_pixel[0]).any() else as_constant(by_pixel[0].copy())


def _transposed(self: Mover, call: Any) -> Any | None:
    """Convert a transposed convolution; one with a stride becomes a plain one."""
    strides, dilation = integers(call.attrs.strides), integers(call.attrs.dilation)
    rule = _plain if strides != [1, 1] and dilation == [1, 1] else _still_transposed
    return rule(self, call)


def _still_transposed(self: Mover, call: Any) -> Any | None:
    weight, attrs, direction = _weight(self, call), call.attrs, self.direction
    if weight is None:
        return None
    return self.result(
        relax.op.nn.conv2d_transpose(
            self.moved(call.args[0]),
            call.args[1],
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            output_padding=list(attrs.output_padding),
            dilation=list(attrs.dilation),
            data_layout=direction.new,
            kernel_layout="IOHW",
            out_layout=direction.new,
        )
    )


def _plain(self: Mover, call: Any) -> Any | None:
    weight = _weight(self, call)
    if weight is None:
        return None
    return self.result(_by_phases(self, call, _dilated(weight, integers(call.attrs.dilation))))


def _weight(self: Mover, call: Any) -> Array | None:
    """Return the constant weight (I, O, H, W) of a transposed convolution in one group."""
    fits = is_anchor(call, self.direction) and str(call.attrs.kernel_layout) == "IOHW"
    return constant_array(call.args[1]) if fits and int(call.attrs.groups) == 1 else None


def _dilated(weight: Array, steps: Sequence[int]) -> Array:
    """Return a kernel (I, O, H, W) with the zeros between its taps."""
    inputs, outputs, rows, columns = weight.shape
    down, right = steps
    wide = np.zeros(
        (inputs, outputs, (rows - 1) * down + 1, (columns - 1) * right + 1), weight.dtype
    )
    wide[:, :, ::down, ::right] = weight
    return wide


def _by_phases(self: Mover, call: Any, weight: Array) -> Any:
    """Rewrite a transposed convolution as a plain one, channels last. It computes one result per
    pixel of a stride for each input pixel, and these are interleaved. Zeros are multiplied only in
    the last taps of a kernel that the strides don't divide."""
    attrs = call.attrs
    batch, channels, height, width = shape_of(call)
    down, right = integers(attrs.strides)
    top, left, _, _ = integers(attrs.padding)
    inputs, _, rows, columns = weight.shape
    taps_y, taps_x = -(-rows // down), -(-columns // right)
    filled = np.pad(
        weight, ((0, 0), (0, 0), (0, taps_y * down - rows), (0, taps_x * right - columns))
    )
    # (I, O, tap, phase, tap, phase), with the taps in a convolution's order.
    phases = filled.reshape(inputs, channels, taps_y, down, taps_x, right)[:, :, ::-1, :, ::-1]
    kernel = phases.transpose(2, 4, 0, 3, 5, 1).reshape(taps_y, taps_x, inputs, -1)
    lines, pixels = -(-(top + height) // down), -(-(left + width) // right)
    _, _, given_lines, given_pixels = shape_of(call.args[0])
    bottom = max(lines - given_lines, 0)
    end = max(pixels - given_pixels, 0)
    results = self.builder_.emit(
        relax.op.nn.conv2d(
            self.moved(call.args[0]),
            as_constant(np.ascontiguousarray(kernel)),
            padding=[taps_y - 1, taps_x - 1, bottom, end],
            data_layout="NHWC",
            kernel_layout="HWIO",
            out_layout="NHWC",
        )
    )
    _, made_lines, made_pixels, _ = shape_of(results)
    apart = (batch, made_lines, made_pixels, down, right, channels)
    value = self.builder_.emit(relax.op.reshape(results, apart))
    value = self.builder_.emit(relax.op.permute_dims(value, [0, 1, 3, 2, 4, 5]))
    together = (batch, made_lines * down, made_pixels * right, channels)
    value = self.builder_.emit(relax.op.reshape(value, together))
    return relax.op.strided_slice(value, [1, 2], [top, left], [top + height, left + width])


_CONVOLUTIONS = frozenset({"relax.nn.conv2d", "relax.nn.conv2d_transpose"})
_FIRST = Direction(
    order=TO_FIRST,
    back=TO_LAST,
    old="NHWC",
    new="NCHW",
    kernel="OIHW",
    rules={**EITHER_WAY, **ONLY_FIRST, **for_each(_flat_prelu, "reshape", "squeeze", "flatten")},
    anchors=frozenset({"relax.nn.conv2d", *WINDOWS}),
    float_networks_only=True,
)
_LAST = Direction(
    order=TO_LAST,
    back=TO_FIRST,
    old="NCHW",
    new="NHWC",
    kernel="HWIO",
    rules={**EITHER_WAY, **ONLY_LAST, **for_each(_transposed, "nn.conv2d_transpose")},
    anchors=_CONVOLUTIONS | (WINDOWS.keys() - {"relax.nn.adaptive_avg_pool2d"}),
    least_channels=8,
)
_LAST_AND_PLAIN = replace(
    _LAST,
    rules={**_LAST.rules, **for_each(_plain, "nn.conv2d_transpose")},
    anchors=_CONVOLUTIONS,
)
