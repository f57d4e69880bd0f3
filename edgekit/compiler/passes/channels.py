"""Move the channels of images last, (N, H, W, C), or first, (N, C, H, W).

edgekit's kernels want channels last: a convolution is then a matrix product whose columns are
channels, and other operators work on whole vectors. Libraries of backends want channels first.

The pass keeps every value's meaning. A result in the new order is followed by a `permute_dims` back
to the model's order, and the next operator that can use the new order looks through it. Unread
permutations are removed as dead code, so that layouts change only at a network's edges and where an
operator resists. A `Direction` is the data of one way: its orders, and the rule of each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.node_names import named_after, numbered, numbering
from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import shape_of
from edgekit.compiler.rewriting import has_known_shape, integers, is_call, operator_of

TO_LAST = (0, 2, 3, 1)
TO_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True)
class Direction:
    order: tuple[int, ...]
    """The axes of the old order, as the new order has them."""
    back: tuple[int, ...]
    """The inverse: the new place of each old axis."""
    old: str
    """The layout of images before, in TVM's letters."""
    new: str
    kernel: str
    """The layout of a convolution's weights after."""
    rules: Mapping[str, Rule]
    """The operators that take images in the new order. All others resist."""
    anchors: frozenset[str]
    """The operators for which a float32 image in the old order is converted."""
    least_channels: int = 1
    """The channels from which a pool or a resize alone is worth a conversion."""
    float_networks_only: bool = False
    """Whether to leave alone any function but one block without quantisation. In a quantised model
    floats only stand for the integers around them, and backends recognise those by their form."""

    @property
    def spatial(self) -> list[int]:
        """The new places of height and width."""
        return [self.new.index("H"), self.new.index("W")]

    def placed(self, axis: Any) -> int:
        """Return the new place of an axis."""
        return self.back[int(axis) % 4]

    def converted(self, array: Array) -> Any:
        return as_constant(np.ascontiguousarray(np.transpose(array, self.order)))


def channels(direction: Direction, name: str) -> Any:
    """Return the pass that moves channels in one direction."""

    def transform(module: Any, context: Any) -> Any:
        del context
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function) and _gains(function, direction):
                mover = Mover(module, function, direction)
                module.update_func(variable, mover.visit_expr(function))
        return module

    return tvm.transform.module_pass(transform, opt_level=0, name=f"edgekit.{name}")


def _gains(function: Any, direction: Direction) -> bool:
    if not direction.float_networks_only:
        return True
    blocks = function.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        return False
    values = [binding.value for binding in blocks[0].bindings]
    return any(is_anchor(value, direction) for value in values) and not any(
        is_call(value, "relax.quantize") for value in values
    )


def is_anchor(value: Any, direction: Direction) -> bool:
    return (
        operator_of(value) in direction.anchors
        and _has_old_layout(value.attrs, direction)
        and str(value.args[0].ty.dtype) == "float32"
    )


def _has_old_layout(attrs: Any, direction: Direction) -> bool:
    layout = attrs.data_layout if hasattr(attrs, "data_layout") else attrs.layout
    result = getattr(attrs, "out_layout", "") or direction.old
    return str(layout) == str(result) == direction.old


@relax.expr_functor.mutator
class Mover(relax.PyExprMutator):  # type: ignore[misc]
    """Rewrites one function. The rules call it for operands and results."""

    def __init__(self, module: Any, function: Any, direction: Direction) -> None:
        super().__init__(module)
        self.direction = direction
        self._moved: dict[Any, Any] = {}
        self._name = ""
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._count = max((numbering(str(b.var.name)) for b in bindings), default=0)

    def visit_var_binding_(self, binding: Any) -> None:
        self._name = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        rule = self.direction.rules.get(operator_of(call))
        if rule is None or not has_known_shape(call):
            return call
        result = rule(self, call)
        return call if result is None else result

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = self.visit_expr_post_order(item)
        rule = self.direction.rules.get(operator_of(self.value(item.tuple_value)))
        result = rule(self, item) if rule is _piece else None
        return item if result is None else result

    def moved(self, expression: Any) -> Any:
        """Return the value in the new order; convert it now if necessary."""
        existing = self.known(expression)
        if existing is not None:
            return existing
        if expression not in self._moved:
            array = constant_array(expression)
            order = list(self.direction.order)
            self._moved[expression] = (
                self.builder_.emit(relax.op.permute_dims(expression, order))
                if array is None
                else self.direction.converted(array)
            )
        return self._moved[expression]

    def known(self, expression: Any) -> Any | None:
        """Return the value in the new order if it was computed so."""
        value = self.value(expression)
        if not is_call(value, "relax.permute_dims") or _axes(value) != self.direction.back:
            return None
        (known,) = value.args
        # A value that leaves its block cannot refer to one that exists only inside the block.
        leaves = not isinstance(expression, relax.DataflowVar)
        stays = isinstance(known, relax.DataflowVar) and not self.direction.float_networks_only
        return None if leaves and stays else known

    def image_of(self, call: Any) -> Any | None:
        """Return the image that an operator reads in the new order; None if nothing asks for it."""
        if not _has_old_layout(call.attrs, self.direction):
            return None
        known = self.known(call.args[0])
        if known is not None or not is_anchor(call, self.direction):
            return known
        channels = shape_of(call.args[0])[self.direction.old.index("C")]
        return self.moved(call.args[0]) if channels >= self.direction.least_channels else None

    def value(self, expression: Any) -> Any:
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else None

    def result(self, value: Any) -> Any:
        """Return a value that was computed in the new order in the model's order."""
        return relax.op.permute_dims(self.emit(value), list(self.direction.back))

    def emit(self, value: Any) -> Any:
        """Emit the value under the name of the layer that is being converted."""
        node = named_after(self._name)
        if not node:
            return self.builder_.emit(value)
        self._count += 1
        return self.builder_.emit(value, numbered(node, self._count))

    def pieces(self, variable: Any, split: Any, data: Any) -> Any:
        """Return a split's pieces in the new order, made once for all of them."""
        if variable not in self._moved:
            axis = self.direction.placed(split.attrs.axis)
            pieces = relax.op.split(data, split.attrs.indices_or_sections, axis)
            self._moved[variable] = self.emit(pieces)
        return self._moved[variable]


Rule = Callable[[Mover, Any], Any]
"""A function that returns the changed call, or None to leave it unchanged."""


def _convolution(self: Mover, call: Any) -> Any | None:
    weight, attrs, direction = constant_array(call.args[1]), call.attrs, self.direction
    if weight is None or not is_anchor(call, direction):
        return None
    order = [str(attrs.kernel_layout).find(letter) for letter in direction.kernel]
    if sorted(order) != [0, 1, 2, 3]:
        return None
    return self.result(
        relax.op.nn.conv2d(
            self.moved(call.args[0]),
            as_constant(np.ascontiguousarray(np.transpose(weight, order))),
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            dilation=list(attrs.dilation),
            groups=int(attrs.groups),
            data_layout=direction.new,
            kernel_layout=direction.kernel,
            out_layout=direction.new,
            out_dtype=attrs.out_dtype or None,
        )
    )


def _pool(self: Mover, call: Any) -> Any | None:
    data, attrs, layout = self.image_of(call), call.attrs, self.direction.new
    if data is None:
        return None
    name = str(call.op.name).rpartition(".")[2]
    if name == "adaptive_avg_pool2d":
        given = {"output_size": integers(attrs.output_size) if attrs.output_size else None}
    else:
        given = {key: getattr(attrs, key) for key in _WINDOW}
    pool = getattr(relax.op.nn, name)
    return self.result(pool(data, **given, layout=layout, out_layout=layout))


_WINDOW = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")


def _resize(self: Mover, call: Any) -> Any | None:
    data, attrs = self.image_of(call), call.attrs
    if data is None:
        return None
    return self.result(
        relax.op.image.resize2d(
            data,
            call.args[1],
            roi=tuple(float(value) for value in attrs.roi),
            layout=self.direction.new,
            method=str(attrs.method),
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
            rounding_method=str(attrs.rounding_method),
            cubic_alpha=float(attrs.cubic_alpha),
            cubic_exclude=int(attrs.cubic_exclude),
            extrapolation_value=float(attrs.extrapolation_value),
            out_dtype=attrs.out_dtype or None,
        )
    )


def unary(self: Mover, call: Any) -> Any | None:
    data = self.known(call.args[0])
    if data is None:
        return None
    return self.result(relax.Call(call.op, [data, *call.args[1:]], call.attrs))


def _quantization(self: Mover, call: Any) -> Any | None:
    """Convert a quantisation that has one scale for all channels."""
    parameters = [constant_array(argument) for argument in call.args[1:]]
    if any(array is None or array.size != 1 for array in parameters):
        return None
    return unary(self, call)


def _binary(self: Mover, call: Any) -> Any | None:
    if len(shape_of(call)) != 4 or not all(map(has_known_shape, call.args)):
        return None
    if all(self.known(argument) is None for argument in call.args):
        return None
    operands = [_operand(self, argument) for argument in call.args]
    if any(operand is None for operand in operands):
        return None
    return self.result(relax.Call(call.op, operands, call.attrs))


def _operand(self: Mover, argument: Any) -> Any | None:
    """Return an operand of a broadcast, whose rank may be less than four."""
    shape = shape_of(argument)
    if len(shape) == 4:
        return self.moved(argument)
    if len(shape) == 0:
        return argument
    array = constant_array(argument)
    if array is None or len(shape) > 4:
        return None
    return self.direction.converted(array.reshape((1,) * (4 - len(shape)) + shape))


def _reduction(self: Mover, call: Any) -> Any | None:
    data = self.known(call.args[0])
    if data is None or call.attrs.axis is None:
        return None
    axes = sorted(self.direction.placed(axis) for axis in call.attrs.axis)
    keeps = bool(call.attrs.keepdims)
    if not keeps and axes != self.direction.spatial:
        return None
    operator = getattr(relax.op, str(call.op.name).rpartition(".")[2])
    result = operator(data, axis=axes, keepdims=keeps)
    return self.result(result) if keeps else result


def _concatenation(self: Mover, call: Any) -> Any | None:
    parts = call.args[0]
    if isinstance(parts, relax.Var):
        parts = self.value(parts)
    if not isinstance(parts, relax.Tuple) or len(shape_of(call)) != 4:
        return None
    if call.attrs.axis is None or all(self.known(part) is None for part in parts.fields):
        return None
    axis = self.direction.placed(call.attrs.axis)
    return self.result(relax.op.concat([self.moved(part) for part in parts.fields], axis))


def _softmax(self: Mover, call: Any) -> Any | None:
    data = self.known(call.args[0])
    if data is None:
        return None
    return self.result(relax.op.nn.softmax(data, axis=self.direction.placed(call.attrs.axis)))


def _pad(self: Mover, call: Any) -> Any | None:
    data = self.known(call.args[0])
    widths = integers(call.attrs.pad_width)
    if data is None or len(widths) != 8:
        return None
    moved = [width for axis in self.direction.order for width in widths[2 * axis : 2 * axis + 2]]
    mode, value = str(call.attrs.pad_mode), float(call.attrs.pad_value)
    return self.result(relax.op.nn.pad(data, moved, pad_mode=mode, pad_value=value))


def _slice(self: Mover, call: Any) -> Any | None:
    data = self.known(call.args[0])
    if data is None or not isinstance(call.args[1], relax.Tuple):
        return None
    axes = [self.direction.placed(getattr(axis, "value", axis)) for axis in call.args[1].fields]
    return self.result(relax.op.strided_slice(data, axes, *call.args[2:]))


def _piece(self: Mover, item: Any) -> Any | None:
    """Convert one piece of a split."""
    split = self.value(item.tuple_value)
    data = self.known(split.args[0])
    if data is None:
        return None
    pieces = self.pieces(item.tuple_value, split, data)
    return self.result(relax.TupleGetItem(pieces, int(item.index)))


def _permutation(self: Mover, call: Any) -> Any | None:
    data = self.known(call.args[0])
    if data is None:
        return None
    composed = [self.direction.back[axis] for axis in _axes(call)]
    return data if composed == [0, 1, 2, 3] else relax.op.permute_dims(data, composed)


def reshape(self: Mover, call: Any) -> Any | None:
    """Convert a reshape of one pixel or one channel, where both orders are the same in memory."""
    data = self.known(call.args[0])
    if data is None:
        return None
    extents = dict(zip(self.direction.new, shape_of(data), strict=True))
    if extents["H"] * extents["W"] != 1 and extents["C"] != 1:
        return None
    return relax.op.reshape(data, shape_of(call))


def _axes(call: Any) -> tuple[int, ...]:
    rank = len(shape_of(call))
    if call.attrs.axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in call.attrs.axes)


def for_each(rule: Rule, *names: str) -> dict[str, Rule]:
    return {f"relax.{name}": rule for name in names}


_POOLS = for_each(_pool, "nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
WINDOWS = {**_POOLS, **for_each(_resize, "image.resize2d")}
UNARY = for_each(
    unary,
    *("abs", "ceil", "clip", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sqrt", "square", "tanh", "astype", "isnan", "isinf"),
    *("nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus"),
    "nn.dropout",
)
BINARY = for_each(
    _binary,
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "where"),
    *("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"),
)
EITHER_WAY: Mapping[str, Rule] = {
    **UNARY,
    **BINARY,
    **for_each(_convolution, "nn.conv2d"),
    **WINDOWS,
    **for_each(_reduction, "mean", "sum", "max", "min"),
    **for_each(_concatenation, "concat"),
    **for_each(_softmax, "nn.softmax"),
    **for_each(_pad, "nn.pad"),
    **for_each(_permutation, "permute_dims"),
    **for_each(reshape, "reshape", "squeeze", "flatten"),
}
ONLY_FIRST = {
    **for_each(_reduction, "prod"),
    **for_each(_slice, "strided_slice"),
    **for_each(_piece, "split"),
}
ONLY_LAST = for_each(_quantization, "quantize", "dequantize")
