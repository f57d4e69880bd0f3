"""Rewrite 1-D and 3-D convolutions as 2-D convolutions, which have a schedule.

A line is an image of one row. A volume is a row of images: its convolution is the sum of one image
convolution per kernel step in depth. Operators between two such convolutions stay in two dimensions
where possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of
from edgekit.compiler.passes.channels import BINARY, UNARY
from edgekit.compiler.rewriting import integers, is_call, operator_of, rewriting

_ROW = 2
"""The axis that an image has and a line lacks."""


@relax.expr_functor.mutator
class _AsImages(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        rule = _RULES.get(operator_of(call))
        if rule is None or not isinstance(call.ty, relax.TensorType):
            return call
        try:
            result = rule(self, call)
        except ShapeDependsOnDataError:
            return call
        return call if result is None else result

    def image(self, line: Any) -> Any:
        existing = self.known_image(line)
        if existing is not None:
            return existing
        batch, channels, width = shape_of(line)
        return relax.op.reshape(line, (batch, channels, 1, width))

    def known_image(self, line: Any) -> Any | None:
        """Return the image that a line was made from, if this pass made one."""
        value: Any = self.lookup_binding(line) if isinstance(line, relax.Var) else None
        if not is_call(value, "relax.squeeze"):
            return None
        (image,) = value.args
        leaves = not isinstance(line, relax.DataflowVar)
        if leaves and isinstance(image, relax.DataflowVar):
            return None
        shape = shape_of(image)
        fits = len(shape) == 4 and shape[_ROW] == 1 and list(value.attrs.axis or ()) == [_ROW]
        return image if fits else None

    def line(self, image: Any) -> Any:
        return relax.op.squeeze(self.builder_.emit(image), [_ROW])


def _weight(call: Any) -> np.ndarray | None:
    weight = constant_array(call.args[1])
    return weight if weight is not None and weight.dtype == np.float32 else None


def _line(self: _AsImages, call: Any) -> Any | None:
    weight, attrs = _weight(call), call.attrs
    if weight is None or (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCW", "OIW"):
        return None
    left, right = integers(attrs.padding)
    convolution = relax.op.nn.conv2d(
        self.image(call.args[0]),
        as_constant(np.ascontiguousarray(weight[:, :, None, :])),
        strides=[1, *integers(attrs.strides)],
        padding=[0, left, 0, right],
        dilation=[1, *integers(attrs.dilation)],
        groups=int(attrs.groups),
        data_layout="NCHW",
        kernel_layout="OIHW",
    )
    return self.line(convolution)


def _transposed_line(self: _AsImages, call: Any) -> Any | None:
    weight, attrs = _weight(call), call.attrs
    if weight is None or (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCW", "IOW"):
        return None
    if int(attrs.groups) != 1:
        return None
    left, right = integers(attrs.padding)
    convolution = relax.op.nn.conv2d_transpose(
        self.image(call.args[0]),
        as_constant(np.ascontiguousarray(weight[:, :, None, :])),
        strides=[1, *integers(attrs.strides)],
        padding=[0, left, 0, right],
        output_padding=[0, *integers(attrs.output_padding)],
        dilation=[1, *integers(attrs.dilation)],
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    return self.line(convolution)


def _volume(self: _AsImages, call: Any) -> Any | None:
    weight, attrs = _weight(call), call.attrs
    if weight is None or (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCDHW", "OIDHW"):
        return None
    if 0 in shape_of(call):
        return None
    front, top, left, back, bottom, right = integers(attrs.padding)
    (deep, *strides), (apart, *dilation) = integers(attrs.strides), integers(attrs.dilation)
    batch, channels, _, height, width = shape_of(call.args[0])
    _, outputs, out_depth, out_height, out_width = shape_of(call)
    images = self.builder_.emit(relax.op.permute_dims(call.args[0], [0, 2, 1, 3, 4]))
    if front or back:
        images = self.builder_.emit(
            relax.op.nn.pad(images, [0, 0, front, back, 0, 0, 0, 0, 0, 0], "constant", 0.0)
        )
    total = None
    for step in range(weight.shape[2]):
        first = step * apart
        end = first + (out_depth - 1) * deep + 1
        part = self.builder_.emit(relax.op.strided_slice(images, [1], [first], [end], [deep]))
        flat = self.builder_.emit(
            relax.op.reshape(part, (batch * out_depth, channels, height, width))
        )
        convolution = self.builder_.emit(
            relax.op.nn.conv2d(
                flat,
                as_constant(np.ascontiguousarray(weight[:, :, step])),
                strides=strides,
                padding=[top, left, bottom, right],
                dilation=dilation,
                groups=int(attrs.groups),
                data_layout="NCHW",
                kernel_layout="OIHW",
            )
        )
        total = (
            convolution if total is None else self.builder_.emit(relax.op.add(convolution, total))
        )
    shape = (batch, out_depth, outputs, out_height, out_width)
    apart_again = self.builder_.emit(relax.op.reshape(total, shape))
    return relax.op.permute_dims(apart_again, [0, 2, 1, 3, 4])


def _unary(self: _AsImages, call: Any) -> Any | None:
    image = self.known_image(call.args[0])
    if image is None:
        return None
    return self.line(relax.Call(call.op, [image, *call.args[1:]], call.attrs))


def _binary(self: _AsImages, call: Any) -> Any | None:
    if len(shape_of(call)) != 3 or all(self.known_image(a) is None for a in call.args):
        return None
    arguments = []
    for argument in call.args:
        array = constant_array(argument)
        if array is not None and 0 < array.ndim <= 3:
            wide = array.reshape((1,) * (3 - array.ndim) + array.shape)
            arguments.append(as_constant(np.ascontiguousarray(wide[:, :, None, :])))
        elif array is not None and array.ndim == 0:
            arguments.append(argument)
        elif len(shape_of(argument)) == 3:
            arguments.append(self.image(argument))
        else:
            return None
    return self.line(relax.Call(call.op, arguments, call.attrs))


def _pool(self: _AsImages, call: Any) -> Any | None:
    image, attrs = self.known_image(call.args[0]), call.attrs
    if image is None or str(attrs.layout) != "NCW" or str(attrs.out_layout) not in ("", "NCW"):
        return None
    left, right = integers(attrs.padding)
    operator = getattr(relax.op.nn, str(call.op.name).rpartition(".")[2].replace("1d", "2d"))
    return self.line(
        operator(
            image,
            [1, *integers(attrs.pool_size)],
            [1, *integers(attrs.strides)],
            [0, left, 0, right],
            [1, *integers(attrs.dilation)],
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
            "NCHW",
        )
    )


_RULES: dict[str, Callable[[_AsImages, Any], Any | None]] = {
    "relax.nn.conv1d": _line,
    "relax.nn.conv1d_transpose": _transposed_line,
    "relax.nn.conv3d": _volume,
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BINARY, _binary),
    "relax.nn.max_pool1d": _pool,
    "relax.nn.avg_pool1d": _pool,
}


def as_images() -> Any:
    return rewriting("AsImages", _AsImages)
