"""Channels first, (N, C, H, W), for backend libraries: TFLite models arrive channels last.

The pass keeps every value's meaning: a result computed channels first is followed by a
`permute_dims` back, and the next operator that can use the channels-first value looks through it.
Unread permutations are removed as dead code, so that layouts change only at a network's edges: its
inputs, its results, and reshapes before dense layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.node_names import named_after, numbered, numbering
from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of

TO_LAST = (0, 2, 3, 1)
TO_FIRST = (0, 3, 1, 2)

_UNARY = (
    *("abs", "ceil", "clip", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sqrt", "square", "tanh", "astype"),
    *("nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus"),
)
_BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "where"),
    *("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"),
)
_REDUCTIONS = ("mean", "sum", "max", "min", "prod")
_ANCHORS = {
    "relax.nn.conv2d": "data_layout",
    "relax.nn.max_pool2d": "layout",
    "relax.nn.avg_pool2d": "layout",
    "relax.nn.adaptive_avg_pool2d": "layout",
    "relax.image.resize2d": "layout",
}
"""Operators that libraries require channels first, and the attribute that holds their layout."""
_WINDOW = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")


@tvm.transform.module_pass(opt_level=0, name="edgekit.ChannelsFirst")
class ChannelsFirst:
    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        mutator = _ChannelsFirst(module)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function) and _gains(function):
                mutator.rewrite(variable, function)
        return mutator.builder_.get()


def _gains(function: Any) -> bool:
    """Return whether the function is one block of floats with something to convert.

    In a quantised model floats only stand for the integers around them, and later passes recognise
    those by their form.
    """
    blocks = function.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        return False
    values = [binding.value for binding in blocks[0].bindings]
    return any(map(_is_anchor, values)) and not any(
        _is_call(value, "relax.quantize") for value in values
    )


def _is_anchor(value: Any) -> bool:
    layout = _ANCHORS.get(_operator(value))
    return (
        layout is not None
        and str(getattr(value.attrs, layout)) == "NHWC"
        and str(value.args[0].ty.dtype) == "float32"
    )


@relax.expr_functor.mutator
class _ChannelsFirst(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._turned: dict[Any, Any] = {}
        self._node = ""
        self._count = 0

    def rewrite(self, variable: Any, function: Any) -> None:
        (block,) = function.body.blocks
        self._count = max(numbering(str(binding.var.name)) for binding in block.bindings)
        self.builder_.update_func(variable, self.visit_expr(function))

    def visit_var_binding_(self, binding: Any) -> None:
        self._node = named_after(str(binding.var.name))
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        rule = _RULES.get(_operator(call))
        if rule is None or not _is_tensor(call):
            return call
        result = rule(self, call)
        return call if result is None else result

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = self.visit_expr_post_order(item)
        result = _piece(self, item)
        return item if result is None else result

    def first(self, expression: Any) -> Any:
        """Return the value channels first; convert it now if necessary."""
        existing = self.known_first(expression)
        if existing is not None:
            return existing
        if expression not in self._turned:
            array = constant_array(expression)
            self._turned[expression] = (
                self.builder_.emit(relax.op.permute_dims(expression, list(TO_FIRST)))
                if array is None
                else _turned(array)
            )
        return self._turned[expression]

    def known_first(self, expression: Any) -> Any | None:
        """Return the value channels first if it was computed so."""
        value = self.value(expression)
        if _is_call(value, "relax.permute_dims") and _axes(value) == TO_LAST:
            return value.args[0]
        return None

    def value(self, expression: Any) -> Any:
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else None

    def last(self, value: Any) -> Any:
        """Return a value that was computed channels first in the model's order."""
        return relax.op.permute_dims(self.emit(value), list(TO_LAST))

    def emit(self, value: Any) -> Any:
        """Emit the value under the name of the node that is being converted."""
        if not self._node:
            return self.builder_.emit(value)
        self._count += 1
        return self.builder_.emit(value, numbered(self._node, self._count))

    def split(self, variable: Any, call: Any, data: Any) -> Any:
        """Return a split's pieces channels first, made once for all of them."""
        if variable not in self._turned:
            axis = TO_LAST[int(call.attrs.axis) % 4]
            pieces = relax.op.split(data, call.attrs.indices_or_sections, axis)
            self._turned[variable] = self.emit(pieces)
        return self._turned[variable]


def _convolution(self: _ChannelsFirst, call: Any) -> Any | None:
    weight = constant_array(call.args[1])
    attrs = call.attrs
    if weight is None or not _is_anchor(call) or str(attrs.out_layout) not in ("", "NHWC"):
        return None
    order = [str(attrs.kernel_layout).find(letter) for letter in "OIHW"]
    if sorted(order) != [0, 1, 2, 3]:
        return None
    convolution = relax.op.nn.conv2d(
        self.first(call.args[0]),
        as_constant(np.transpose(weight, order).copy(order="C")),
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout="NCHW",
        kernel_layout="OIHW",
        out_layout="NCHW",
        out_dtype=attrs.out_dtype or None,
    )
    return self.last(convolution)


def _pool(self: _ChannelsFirst, call: Any) -> Any | None:
    attrs = call.attrs
    if not _is_anchor(call) or str(attrs.out_layout) not in ("", "NHWC"):
        return None
    name = str(call.op.name).rpartition(".")[2]
    if name == "adaptive_avg_pool2d":
        given = {"output_size": list(attrs.output_size) if attrs.output_size else None}
    else:
        given = {key: getattr(attrs, key) for key in _WINDOW}
    data = self.first(call.args[0])
    pool = getattr(relax.op.nn, name)
    return self.last(pool(data, **given, layout="NCHW", out_layout="NCHW"))


def _resize(self: _ChannelsFirst, call: Any) -> Any | None:
    attrs = call.attrs
    if not _is_anchor(call):
        return None
    resized = relax.op.image.resize2d(
        self.first(call.args[0]),
        call.args[1],
        roi=tuple(float(value) for value in attrs.roi),
        layout="NCHW",
        method=str(attrs.method),
        coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
        rounding_method=str(attrs.rounding_method),
        cubic_alpha=float(attrs.cubic_alpha),
        cubic_exclude=int(attrs.cubic_exclude),
        extrapolation_value=float(attrs.extrapolation_value),
        out_dtype=attrs.out_dtype or None,
    )
    return self.last(resized)


def _unary(self: _ChannelsFirst, call: Any) -> Any | None:
    data = self.known_first(call.args[0])
    if data is None:
        return None
    return self.last(relax.Call(call.op, [data, *call.args[1:]], call.attrs))


def _binary(self: _ChannelsFirst, call: Any) -> Any | None:
    if len(shape_of(call)) != 4 or not all(map(_is_tensor, call.args)):
        return None
    if all(self.known_first(argument) is None for argument in call.args):
        return None
    operands = [_operand(self, argument) for argument in call.args]
    if any(operand is None for operand in operands):
        return None
    return self.last(relax.Call(call.op, operands, call.attrs))


def _operand(self: _ChannelsFirst, argument: Any) -> Any | None:
    """Return an operand of a broadcast, whose rank may be less than four."""
    shape = shape_of(argument)
    if len(shape) == 4:
        return self.first(argument)
    if len(shape) == 0:
        return argument
    array = constant_array(argument)
    if array is None or len(shape) > 4:
        return None
    return _turned(array.reshape((1,) * (4 - len(shape)) + shape))


def _reduction(self: _ChannelsFirst, call: Any) -> Any | None:
    data = self.known_first(call.args[0])
    if data is None or call.attrs.axis is None:
        return None
    axes = sorted(TO_LAST[int(axis) % 4] for axis in call.attrs.axis)
    keeps = bool(call.attrs.keepdims)
    if not keeps and axes != [2, 3]:
        return None
    operator = getattr(relax.op, str(call.op.name).rpartition(".")[2])
    result = operator(data, axis=axes, keepdims=keeps)
    return self.last(result) if keeps else result


def _concatenation(self: _ChannelsFirst, call: Any) -> Any | None:
    parts = call.args[0]
    if isinstance(parts, relax.Var):
        parts = self.value(parts)
    if not isinstance(parts, relax.Tuple) or len(shape_of(call)) != 4:
        return None
    if call.attrs.axis is None or all(self.known_first(part) is None for part in parts.fields):
        return None
    axis = TO_LAST[int(call.attrs.axis) % 4]
    return self.last(relax.op.concat([self.first(part) for part in parts.fields], axis))


def _softmax(self: _ChannelsFirst, call: Any) -> Any | None:
    data = self.known_first(call.args[0])
    if data is None:
        return None
    return self.last(relax.op.nn.softmax(data, axis=TO_LAST[int(call.attrs.axis) % 4]))


def _pad(self: _ChannelsFirst, call: Any) -> Any | None:
    data = self.known_first(call.args[0])
    widths = [int(width) for width in call.attrs.pad_width]
    if data is None or len(widths) != 8:
        return None
    moved = [width for axis in TO_FIRST for width in widths[2 * axis : 2 * axis + 2]]
    mode, value = str(call.attrs.pad_mode), float(call.attrs.pad_value)
    return self.last(relax.op.nn.pad(data, moved, pad_mode=mode, pad_value=value))


def _slice(self: _ChannelsFirst, call: Any) -> Any | None:
    data = self.known_first(call.args[0])
    if data is None or not isinstance(call.args[1], relax.Tuple):
        return None
    axes = [TO_LAST[int(getattr(axis, "value", axis)) % 4] for axis in call.args[1].fields]
    return self.last(relax.op.strided_slice(data, axes, *call.args[2:]))


def _piece(self: _ChannelsFirst, item: Any) -> Any | None:
    split = self.value(item.tuple_value)
    if not _is_call(split, "relax.split"):
        return None
    data = self.known_first(split.args[0])
    if data is None:
        return None
    pieces = self.split(item.tuple_value, split, data)
    return self.last(relax.TupleGetItem(pieces, int(item.index)))


def _permutation(self: _ChannelsFirst, call: Any) -> Any | None:
    data = self.known_first(call.args[0])
    if data is None:
        return None
    composed = [TO_LAST[axis] for axis in _axes(call)]
    return data if composed == [0, 1, 2, 3] else relax.op.permute_dims(data, composed)


def _reshape(self: _ChannelsFirst, call: Any) -> Any | None:
    slopes = _flat_prelu(self, call)
    if slopes is not None:
        return slopes
    data = self.known_first(call.args[0])
    if data is None:
        return None
    _, channels, height, width = shape_of(data)
    if height * width != 1 and channels != 1:
        return None
    # With one pixel, or one channel, both orders are the same in memory.
    return relax.op.reshape(data, shape_of(call))


def _flat_prelu(self: _ChannelsFirst, call: Any) -> Any | None:
    """Convert PReLU as TVM's TFLite importer writes it: flattened, with a slope per element."""
    prelu = self.value(call.args[0])
    if not _is_call(prelu, "relax.nn.prelu"):
        return None
    flat = self.value(prelu.args[0])
    if not _is_call(flat, "relax.reshape") or not _is_tensor(flat.args[0]):
        return None
    data, shape = self.known_first(flat.args[0]), shape_of(call)
    if data is None or shape_of(flat.args[0]) != shape:
        return None
    slopes = _slopes(self, prelu.args[1], shape)
    return None if slopes is None else self.last(relax.op.nn.prelu(data, slopes, axis=1))


def _slopes(self: _ChannelsFirst, expression: Any, shape: tuple[int, ...]) -> Any | None:
    """Return one slope per channel where all pixels have the same slopes."""
    values = constant_array(expression)
    if values is None:
        row = self.value(expression)
        if not _is_call(row, "relax.reshape"):
            return None
        whole = self.value(row.args[0])
        if not _is_call(whole, "relax.broadcast_to") or shape_of(whole) != shape:
            return None
        values = constant_array(whole.args[0])
        if values is None or values.size != shape[-1] or values.shape[-1:] != shape[-1:]:
            return None
    by_pixel = values.reshape(-1, shape[-1])
    return None if (by_pixel != by_pixel[0]).any() else as_constant(by_pixel[0].copy())


def _named(names: Sequence[str], rule: Rule) -> dict[str, Rule]:
    return {f"relax.{name}": rule for name in names}


Rule = Callable[[_ChannelsFirst, Any], Any]
"""A function that returns the changed call, or None to leave it unchanged."""

_RULES: dict[str, Rule] = {
    **_named(("nn.conv2d",), _convolution),
    **_named(("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"), _pool),
    **_named(("image.resize2d",), _resize),
    **_named(_UNARY, _unary),
    **_named(_BINARY, _binary),
    **_named(_REDUCTIONS, _reduction),
    **_named(("concat",), _concatenation),
    **_named(("nn.softmax",), _softmax),
    **_named(("nn.pad",), _pad),
    **_named(("strided_slice",), _slice),
    **_named(("permute_dims",), _permutation),
    **_named(("reshape", "squeeze", "flatten"), _reshape),
}


def _turned(array: Array) -> Any:
    return as_constant(np.transpose(array, TO_FIRST).copy(order="C"))


def _operator(value: Any) -> str:
    return str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""


def _is_call(value: Any, name: str) -> bool:
    return _operator(value) == name


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
    if call.attrs.axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in call.attrs.axes)
