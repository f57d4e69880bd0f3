"""Channels last: (N, H, W, C) inside the network, (N, C, H, W) only where an operator needs it.

With the channels adjacent in memory, a convolution is a matrix product whose columns are channels,
and pooling and element-wise operators work on whole vectors. The pass keeps every value's meaning:
a result computed channels last is followed by a `permute_dims` back, and the next operator that can
use the channels-last value looks through it. Unread permutations are removed as dead code, so that
layouts change only at a network's edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of

TO_LAST = (0, 2, 3, 1)
TO_FIRST = (0, 3, 1, 2)

UNARY = frozenset(
    f"relax.{name}"
    for name in (
        *("abs", "ceil", "clip", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt"),
        *("sigmoid", "sign", "sin", "sqrt", "square", "tanh", "astype", "isnan", "isinf"),
        *(
            "nn.relu",
            "nn.leakyrelu",
            "nn.gelu",
            "nn.gelu_tanh",
            "nn.silu",
            "nn.selu",
            "nn.softplus",
        ),
        *("nn.dropout",),
    )
)
BINARY = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "where"),
        *("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"),
    )
)
_POOLS = frozenset(
    f"relax.nn.{name}" for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d")
)
_REDUCTIONS = frozenset(f"relax.{name}" for name in ("mean", "sum", "max", "min"))


@relax.expr_functor.mutator
class _ChannelsLast(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, only_plain: bool) -> None:
        super().__init__(module)
        self.only_plain = only_plain
        self._last: dict[Any, Any] = {}
        self._name = ""

    def visit_var_binding_(self, binding: Any) -> None:
        self._name = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = str(getattr(call.op, "name", ""))
        rule = _RULES.get(name)
        if rule is None or not _is_tensor(call):
            return call
        result = rule(self, call)
        return call if result is None else result

    def last(self, expression: Any) -> Any:
        """Return the value channels last; convert it now if necessary."""
        existing = self.known_last(expression)
        if existing is not None:
            return existing
        if expression not in self._last:
            array = constant_array(expression)
            self._last[expression] = (
                self.builder_.emit(relax.op.permute_dims(expression, list(TO_LAST)))
                if array is None
                else as_constant(np.ascontiguousarray(np.transpose(array, TO_LAST)))
            )
        return self._last[expression]

    def known_last(self, expression: Any) -> Any | None:
        """Return the value channels last if it was computed so."""
        if not isinstance(expression, relax.Var):
            return None
        value = self.lookup_binding(expression)
        if not _is_call(value, "relax.permute_dims") or _axes(value) != TO_FIRST:
            return None
        (last,) = value.args
        # A value that leaves its block cannot refer to one that exists only inside the block.
        leaves = not isinstance(expression, relax.DataflowVar)
        return None if leaves and isinstance(last, relax.DataflowVar) else last

    def first(self, value: Any) -> Any:
        """Return a value that was computed channels last in the model's order, under the name of
        its layer."""
        return relax.op.permute_dims(self.builder_.emit(value, self._name), list(TO_FIRST))


def _convolution(self: _ChannelsLast, call: Any) -> Any | None:
    weight = constant_array(call.args[1])
    attrs = call.attrs
    if weight is None or weight.dtype != np.float32:
        return None
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCHW", "OIHW"):
        return None
    if str(attrs.out_layout) not in ("", "NCHW"):
        return None
    convolution = relax.op.nn.conv2d(
        self.last(call.args[0]),
        as_constant(np.ascontiguousarray(weight.transpose(2, 3, 1, 0))),
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_layout="NHWC",
    )
    return self.first(convolution)


def _transposed(self: _ChannelsLast, call: Any) -> Any | None:
    weight = constant_array(call.args[1])
    attrs = call.attrs
    if weight is None or weight.dtype != np.float32 or int(attrs.groups) != 1:
        return None
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCHW", "IOHW"):
        return None
    if str(attrs.out_layout) not in ("", "NCHW"):
        return None
    dilation = _integers(attrs.dilation)
    if self.only_plain or (_integers(attrs.strides) != [1, 1] and dilation == [1, 1]):
        return self.first(_by_phases(self, call, _dilated(weight, dilation)))
    transposed = relax.op.nn.conv2d_transpose(
        self.last(call.args[0]),
        call.args[1],
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        output_padding=list(attrs.output_padding),
        dilation=list(attrs.dilation),
        data_layout="NHWC",
        kernel_layout="IOHW",
        out_layout="NHWC",
    )
    return self.first(transposed)


def _dilated(weight: np.ndarray, steps: Sequence[int]) -> np.ndarray:
    """Return a kernel (I, O, H, W) with the zeros between its taps."""
    inputs, outputs, rows, columns = weight.shape
    down, right = steps
    wide = np.zeros(
        (inputs, outputs, (rows - 1) * down + 1, (columns - 1) * right + 1), weight.dtype
    )
    wide[:, :, ::down, ::right] = weight
    return wide


def _by_phases(self: _ChannelsLast, call: Any, weight: np.ndarray) -> Any:
    """Rewrite a transposed convolution as a plain one, channels last. It computes one result per
    pixel of a stride for each input pixel, and these are interleaved. Zeros are multiplied only in
    the last taps of a kernel that the strides don't divide."""
    attrs = call.attrs
    batch, channels, height, width = shape_of(call)
    down, right = _integers(attrs.strides)
    top, left, _, _ = _integers(attrs.padding)
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
            self.last(call.args[0]),
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


def _unary(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    if data is None:
        return None
    return self.first(relax.Call(call.op, [data, *call.args[1:]], call.attrs))


def _quantization(self: _ChannelsLast, call: Any) -> Any | None:
    """Convert a quantisation that has one scale for all channels."""
    parameters = [constant_array(argument) for argument in call.args[1:]]
    if any(array is None or array.size != 1 for array in parameters):
        return None
    return _unary(self, call)


def _binary(self: _ChannelsLast, call: Any) -> Any | None:
    if len(shape_of(call)) != 4 or not all(_is_tensor(argument) for argument in call.args):
        return None
    if not any(self.known_last(argument) is not None for argument in call.args):
        return None
    arguments = [_operand(self, argument) for argument in call.args]
    if any(argument is None for argument in arguments):
        return None
    return self.first(relax.Call(call.op, arguments, call.attrs))


def _operand(self: _ChannelsLast, argument: Any) -> Any | None:
    """Return an operand of a broadcast, whose rank may be less than four."""
    shape = shape_of(argument)
    if len(shape) == 4:
        return self.last(argument)
    if len(shape) == 0:
        return argument
    array = constant_array(argument)
    if array is None or len(shape) > 4:
        return None
    wide = array.reshape((1,) * (4 - len(shape)) + shape)
    return as_constant(np.ascontiguousarray(np.transpose(wide, TO_LAST)))


def _pool(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    if data is None or str(call.attrs.layout) != "NCHW":
        return None
    name, attrs = str(call.op.name).rpartition(".")[2], call.attrs
    if name == "adaptive_avg_pool2d":
        sizes = None if attrs.output_size is None else _integers(attrs.output_size)
        return self.first(relax.op.nn.adaptive_avg_pool2d(data, sizes, "NHWC", "NHWC"))
    return self.first(
        getattr(relax.op.nn, name)(
            data,
            _integers(attrs.pool_size),
            _integers(attrs.strides),
            _integers(attrs.padding),
            _integers(attrs.dilation),
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
            "NHWC",
            "NHWC",
        )
    )


def _integers(values: Any) -> list[int]:
    return [int(value) for value in values]


def _reduction(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    if data is None or call.attrs.axis is None:
        return None
    axes = [TO_FIRST[int(axis) % 4] for axis in call.attrs.axis]
    operator = getattr(relax.op, str(call.op.name).rpartition(".")[2])
    keeps = bool(call.attrs.keepdims)
    if not keeps and sorted(axes) != [1, 2]:
        return None
    result = operator(data, axis=axes, keepdims=keeps)
    return self.first(result) if keeps else result


def _concatenation(self: _ChannelsLast, call: Any) -> Any | None:
    parts = call.args[0]
    if isinstance(parts, relax.Var):
        parts = self.lookup_binding(parts)
    if not isinstance(parts, relax.Tuple) or len(shape_of(call)) != 4:
        return None
    if not any(self.known_last(field) is not None for field in parts.fields):
        return None
    axis = TO_FIRST[int(call.attrs.axis) % 4]
    return self.first(relax.op.concat([self.last(field) for field in parts.fields], axis))


def _softmax(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    if data is None:
        return None
    return self.first(relax.op.nn.softmax(data, axis=TO_FIRST[int(call.attrs.axis) % 4]))


def _pad(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    widths = [int(width) for width in call.attrs.pad_width]
    if data is None or len(widths) != 8:
        return None
    moved = [width for axis in TO_LAST for width in widths[2 * axis : 2 * axis + 2]]
    return self.first(
        relax.op.nn.pad(data, moved, str(call.attrs.pad_mode), float(call.attrs.pad_value))
    )


def _resize(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    if data is None or str(call.attrs.layout) != "NCHW":
        return None
    attrs = call.attrs
    return self.first(
        relax.op.image.resize2d(
            data,
            call.args[1],
            roi=tuple(float(value) for value in attrs.roi),
            layout="NHWC",
            method=str(attrs.method),
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
            rounding_method=str(attrs.rounding_method),
            cubic_alpha=float(attrs.cubic_alpha),
            cubic_exclude=int(attrs.cubic_exclude),
            extrapolation_value=float(attrs.extrapolation_value),
        )
    )


def _permutation(self: _ChannelsLast, call: Any) -> Any | None:
    data = self.known_last(call.args[0])
    if data is None or call.attrs.axes is None:
        return None
    composed = tuple(TO_FIRST[axis] for axis in _axes(call))
    return data if composed == (0, 1, 2, 3) else relax.op.permute_dims(data, list(composed))


def _reshape(self: _ChannelsLast, call: Any) -> Any | None:
    """Convert a reshape of one pixel or one channel, where both orders are the same in memory."""
    data = self.known_last(call.args[0])
    if data is None:
        return None
    _, height, width, channels = shape_of(data)
    if height * width != 1 and channels != 1:
        return None
    return relax.op.reshape(data, shape_of(call))


_RULES: dict[str, Callable[[_ChannelsLast, Any], Any | None]] = {
    "relax.nn.conv2d": _convolution,
    "relax.nn.conv2d_transpose": _transposed,
    **dict.fromkeys(UNARY, _unary),
    "relax.quantize": _quantization,
    "relax.dequantize": _quantization,
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "relax.concat": _concatenation,
    "relax.nn.softmax": _softmax,
    "relax.nn.pad": _pad,
    "relax.image.resize2d": _resize,
    "relax.permute_dims": _permutation,
    "relax.reshape": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
}


def _is_call(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == name


def _is_tensor(expression: Any) -> bool:
    if not isinstance(expression.ty, relax.TensorType):
        return False
    try:
        shape_of(expression)
    except ShapeDependsOnDataError:
        return False
    return True


def _axes(call: Any) -> tuple[int, ...]:
    rank = len(shape_of(call))
    axes = call.attrs.axes
    if axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in axes)


@tvm.transform.module_pass(opt_level=0, name="edgekit.ChannelsLast")
class ChannelsLast:
    """Convert any module. `only_plain` makes every transposed convolution a plain one, for
    compilers without a loop nest for transposed ones."""

    def __init__(self, only_plain: bool = False) -> None:
        self._only_plain = only_plain

    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                rewriter = _ChannelsLast(module, self._only_plain)
                module.update_func(variable, rewriter.visit_expr(function))
        return module
