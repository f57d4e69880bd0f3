"""Random ONNX graphs of odd shapes: each node was run by onnxruntime before it was kept.

Ranks from 0 to 5, axes of length 1, broadcasts, tensors read twice, outputs that are inputs or
constants, inputs that nothing reads. Values stay finite and away from ties, where two right
runtimes may differ by a whole number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from support.onnx_models import OPSET

LARGEST = 4096
"""Elements of a tensor."""
_NEAR = 1e-3
"""Floats this near to a tie are not rounded or compared."""
_UNARY = (
    *("Abs", "Neg", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Exp", "Softplus", "Elu"),
    *("HardSigmoid", "HardSwish", "Sin", "Cos", "Atan", "Identity", "Sign", "Selu"),
)
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_ROUND = ("Floor", "Ceil", "Round")
_COMPARE = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")
_REDUCE = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
_TYPES = ("float32", "float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")


class Unfit(Exception):
    pass


@dataclass
class RandomGraph:
    dice: random.Random
    values: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    # What a node is made of.

    def shape(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        rank = self.dice.randint(least, most)
        extents = [1, 1, 2, 3, 4, 5, 7, 8] if rank < 4 else [1, 1, 2, 3, 4]
        return tuple(self.dice.choice(extents) for _ in range(rank))

    def numbers(self, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
        generator = np.random.default_rng(self.dice.getrandbits(32))
        if dtype == "bool":
            return np.asarray(generator.random(tuple(shape)) < 0.5)
        if np.dtype(dtype).kind in "iu":
            return np.asarray(generator.integers(0, 9, tuple(shape)), dtype)
        return np.asarray(generator.uniform(-1.0, 1.0, tuple(shape)), dtype)

    def input(self, shape: Sequence[int], dtype: str = "float32") -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = self.numbers(shape, dtype)
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = value
        return name

    def whole(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, "int64"))

    def pick(self, kinds: str = "f", least: int = 0, most: int = 5) -> str:
        """A tensor so far, the later the likelier."""
        found = [
            name
            for name, value in self.values.items()
            if value.dtype.kind in kinds and least <= value.ndim <= most and value.size
        ]
        if not found:
            raise Unfit
        return found[max(self.dice.randrange(len(found)), self.dice.randrange(len(found)))]

    def partner(self, name: str) -> str:
        """A tensor or a constant that broadcasts with another."""
        value = self.values[name]
        way = self.dice.randrange(4)
        if way == 0:
            return name
        if way == 1:
            same = [
                other
                for other, held in self.values.items()
                if held.dtype == value.dtype and _broadcast(held.shape, value.shape)
            ]
            return self.dice.choice(same)
        shape = [self.dice.choice((extent, 1)) for extent in value.shape]
        shape = shape[self.dice.randint(0, len(shape)) :]
        if self.dice.random() < 0.2 and len(shape) == value.ndim < 5:
            shape = [2, *shape]
        numbers = self.numbers(shape, value.dtype.name)
        return self.constant(numbers) if way == 2 else self._fed(numbers)

    def _fed(self, numbers: np.ndarray) -> str:
        name = self.input(numbers.shape, numbers.dtype.name)
        self.values[name] = numbers
        return name

    def axis(self, name: str) -> int:
        rank = self.values[name].ndim
        if rank == 0:
            raise Unfit
        return self.dice.randrange(-rank, rank)

    def node(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        """Keep the node if onnxruntime runs it, and it gives finite numbers of a fair size."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        attributes = {key: value for key, value in attributes.items() if value != []}
        made = helper.make_node(kind, list(inputs), names, name=f"n{len(self.nodes)}", **attributes)
        results = _run([made], {name: self.values[name] for name in inputs if name}, names)
        for value in results:
            if value.size > LARGEST or value.ndim > 5:
                raise Unfit
            if value.dtype.kind == "f" and not (np.abs(value) < 1e4).all():
                raise Unfit
        self.nodes.append(made)
        self.values.update(zip(names, results, strict=True))

    # The whole of it.

    def grow(self, nodes: int) -> None:
        self.input(self.shape())
        tries = 0
        while len(self.nodes) < nodes and tries < 20 * nodes:
            tries += 1
            if self.dice.random() < 0.1:
                self.input(self.shape())
            try:
                self.dice.choice(GROWERS)(self)
            except (Unfit, *_REFUSALS):
                continue

    def model(self) -> onnx.ModelProto:
        """The graph with the tensors that nothing reads for outputs, and a few others."""
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for node in self.nodes for name in node.output if name not in read]
        others = [name for name in self.values if name not in outputs and self.values[name].size]
        outputs += self.dice.sample(others, min(len(others), self.dice.randrange(3)))
        graph = helper.make_graph(
            self.nodes,
            "random",
            [_info(name, self.values[name]) for name in self.inputs],
            [_info(name, self.values[name]) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model)
        return model

    def fed(self) -> dict[str, np.ndarray]:
        return {name: self.values[name] for name in self.inputs}


_REFUSALS = (
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
    onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
    onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
)


def random_graph(dice: random.Random, nodes: int = 6) -> RandomGraph:
    graph = RandomGraph(dice)
    graph.grow(nodes)
    return graph


def _info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


def _run(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], names: Sequence[str]
) -> list[np.ndarray]:
    graph = helper.make_graph(
        list(nodes),
        "one",
        [_info(name, value) for name, value in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(value) for value in session.run(list(names), feeds)]


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(left, right)
    except ValueError:
        return False
    return True


# One function for each family of operators.


def _unary(g: RandomGraph) -> None:
    kind = g.dice.choice(_UNARY)
    name = g.pick()
    if kind == "Sign" and (np.abs(g.values[name]) < _NEAR).any():
        raise Unfit
    g.node(kind, [name])


def _root(g: RandomGraph) -> None:
    name = g.pick()
    if not (g.values[name] > _NEAR).all():
        raise Unfit
    g.node(g.dice.choice(("Sqrt", "Log", "Reciprocal")), [name])


def _round(g: RandomGraph) -> None:
    name = g.pick()
    doubled = g.values[name].astype("float64") * 2
    if (np.abs(doubled - np.rint(doubled)) < _NEAR).any():
        raise Unfit
    g.node(g.dice.choice(_ROUND), [name])


def _cast(g: RandomGraph) -> None:
    name, to = g.pick("fiub"), g.dice.choice(_TYPES)
    value = g.values[name]
    if value.dtype.kind == "f" and np.dtype(to).kind in "iub":
        near = np.abs(value.astype("float64") - np.rint(value.astype("float64"))) < _NEAR
        if near.any() or (value < 0).any() or (value > 100).any():
            raise Unfit
    if value.dtype.kind in "iu" and np.dtype(to).itemsize == 1 and (np.abs(value) > 100).any():
        raise Unfit
    g.node("Cast", [name], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def _binary(g: RandomGraph) -> None:
    name = g.pick("fi")
    pair = [name, g.partner(name)]
    g.dice.shuffle(pair)
    g.node(g.dice.choice(_BINARY), pair)


def _divide(g: RandomGraph) -> None:
    name = g.pick("fi")
    other = g.partner(name)
    if (np.abs(g.values[other].astype("float64")) < 0.1).any():
        raise Unfit
    g.node("Div", [name, other])


def _compare(g: RandomGraph) -> None:
    name = g.pick("fi")
    other = g.partner(name)
    if g.values[name].dtype.kind == "f":
        apart = np.abs(g.values[name].astype("float64") - g.values[other].astype("float64"))
        if (apart < _NEAR).any():
            raise Unfit
    g.node(g.dice.choice(_COMPARE), [name, other])


def _logic(g: RandomGraph) -> None:
    name = g.pick("b")
    if g.dice.random() < 0.3:
        g.node("Not", [name])
    else:
        g.node(g.dice.choice(("And", "Or", "Xor")), [name, g.partner(name)])


def _where(g: RandomGraph) -> None:
    condition, name = g.pick("b"), g.pick("fi")
    g.node("Where", [condition, name, g.partner(name)])


def _reduce(g: RandomGraph) -> None:
    name = g.pick()
    rank = g.values[name].ndim
    axes = g.dice.sample(range(rank), g.dice.randint(0, rank))
    axes = [axis - rank * g.dice.randrange(2) for axis in axes]
    keep = g.dice.randrange(2)
    if g.dice.random() < 0.4:
        g.node("ReduceSum", [name, g.whole(*axes)], keepdims=keep)
    else:
        more = {"axes": axes} if axes else {}
        g.node(g.dice.choice(_REDUCE), [name], keepdims=keep, **more)


def _arg(g: RandomGraph) -> None:
    name = g.pick()
    axis = g.axis(name)
    ordered = np.sort(g.values[name].astype("float64"), axis)
    if (np.diff(ordered, axis=axis) < _NEAR).any():
        raise Unfit
    kind = g.dice.choice(("ArgMax", "ArgMin", "TopK"))
    if kind == "TopK":
        count = g.whole(g.dice.randint(1, ordered.shape[axis]))
        g.node("TopK", [name, count], 2, axis=axis, largest=g.dice.randrange(2))
    else:
        g.node(kind, [name], axis=axis, keepdims=g.dice.randrange(2))


def _softmax(g: RandomGraph) -> None:
    name = g.pick(least=1)
    g.node(g.dice.choice(("Softmax", "LogSoftmax")), [name], axis=g.axis(name))


def _concat(g: RandomGraph) -> None:
    name = g.pick("fib", least=1)
    value, axis = g.values[name], g.axis(name)
    fitting = [
        other
        for other, held in g.values.items()
        if held.dtype == value.dtype and held.ndim == value.ndim
    ]
    parts = [name, *(g.dice.choice(fitting) for _ in range(g.dice.randint(0, 2)))]
    if g.dice.random() < 0.3:
        parts.append(g.constant(g.numbers(value.shape, value.dtype.name)))
    g.node("Concat", parts, axis=axis)


def _split(g: RandomGraph) -> None:
    name = g.pick("fi", least=1)
    axis = g.axis(name)
    extent = g.values[name].shape[axis]
    first = g.dice.randint(1, extent)
    sizes = [first, extent - first] if first < extent else [extent]
    g.node("Split", [name, g.whole(*sizes)], len(sizes), axis=axis)


def _slice(g: RandomGraph) -> None:
    name = g.pick("fib", least=1)
    axis = g.axis(name)
    extent = g.values[name].shape[axis]
    step = g.dice.choice((1, 1, 2, -1, -2))
    begin, end = sorted(g.dice.randint(-extent, extent) for _ in range(2))
    if step < 0:
        begin, end = end, begin
    g.node("Slice", [name, g.whole(begin), g.whole(end), g.whole(axis), g.whole(step)])


def _pad(g: RandomGraph) -> None:
    name = g.pick(least=1)
    rank = g.values[name].ndim
    mode = g.dice.choice(("constant", "constant", "reflect", "edge"))
    widths = [g.dice.choice((0, 0, 1, 2)) for _ in range(2 * rank)]
    if mode == "constant" and g.dice.random() < 0.3:
        widths[g.dice.randrange(2 * rank)] = -1
    more = [g.constant(g.numbers(()))] if mode == "constant" and g.dice.random() < 0.5 else []
    g.node("Pad", [name, g.whole(*widths), *more], mode=mode)


def _transpose(g: RandomGraph) -> None:
    name = g.pick("fib")
    rank = g.values[name].ndim
    order = g.dice.sample(range(rank), rank)
    if rank == 4 and g.dice.random() < 0.6:
        order = g.dice.choice(([0, 2, 3, 1], [0, 3, 1, 2]))
    g.node("Transpose", [name], **({"perm": order} if g.dice.random() < 0.9 else {}))


def _reshape(g: RandomGraph) -> None:
    name = g.pick("fib")
    left, shape = g.values[name].size, []
    while left > 1 and len(shape) < 4 and g.dice.random() < 0.8:
        extent = g.dice.choice([d for d in range(1, left + 1) if left % d == 0])
        shape.append(extent)
        left //= extent
    shape.append(left)
    if g.dice.random() < 0.3:
        shape[g.dice.randrange(len(shape))] = -1
    if g.values[name].size == 1 and g.dice.random() < 0.5:
        shape = []
    g.node("Reshape", [name, g.whole(*shape)])


def _squeeze(g: RandomGraph) -> None:
    name = g.pick("fib")
    value = g.values[name]
    ones = [axis for axis, extent in enumerate(value.shape) if extent == 1]
    kind = g.dice.choice(("Squeeze", "Unsqueeze", "Flatten"))
    if kind == "Flatten":
        g.node(kind, [name], axis=g.dice.randint(0, value.ndim))
    elif kind == "Squeeze" and ones:
        g.node(kind, [name, g.whole(*g.dice.sample(ones, g.dice.randint(1, len(ones))))])
    else:
        g.node("Unsqueeze", [name, g.whole(g.dice.randint(0, value.ndim))])


def _expand(g: RandomGraph) -> None:
    name = g.pick("fib")
    shape = g.values[name].shape
    if g.dice.random() < 0.5 and shape:
        g.node("Tile", [name, g.whole(*(g.dice.choice((1, 1, 2, 3)) for _ in shape))])
    else:
        wide = [extent if extent > 1 else g.dice.choice((1, 2, 3)) for extent in shape]
        g.node("Expand", [name, g.whole(*([2] if g.dice.random() < 0.3 else []), *wide)])


def _gather(g: RandomGraph) -> None:
    name = g.pick("fib", least=1)
    axis = g.axis(name)
    extent = g.values[name].shape[axis]
    shape = g.shape(0, 2)
    indices = np.array(
        [g.dice.randrange(-extent, extent) for _ in range(math.prod(shape))], "int64"
    )
    g.node("Gather", [name, g.constant(indices.reshape(shape))], axis=axis)


def _matmul(g: RandomGraph) -> None:
    name = g.pick(least=1)
    value = g.values[name]
    fitting = [
        other
        for other, held in g.values.items()
        if held.dtype == value.dtype and held.ndim and held.shape[-2:][0] == value.shape[-1]
    ]
    way = g.dice.randrange(3)
    shape = (value.shape[-1], g.dice.choice((1, 2, 5, 16)))
    if way == 0 and fitting:
        other = g.dice.choice(fitting)
    elif way == 1:
        other = g._fed(g.numbers(g.dice.choice((shape, shape[:1])), value.dtype.name))
    else:
        batch = (*value.shape[:-2], *shape) if g.dice.random() < 0.3 else shape
        other = g.constant(g.numbers(batch, value.dtype.name))
    g.node("MatMul", [name, other])


def _gemm(g: RandomGraph) -> None:
    name = g.pick(least=2, most=2)
    value = g.values[name]
    flip_left, flip_right = g.dice.randrange(2), g.dice.randrange(2)
    depth, columns = value.shape[0 if flip_left else 1], g.dice.choice((1, 3, 8))
    shape = (columns, depth) if flip_right else (depth, columns)
    bias = g.dice.choice(((), (1,), (columns,), (1, columns)))
    dtype = value.dtype.name
    g.node(
        "Gemm",
        [name, g.constant(g.numbers(shape, dtype)), g.constant(g.numbers(bias, dtype))],
        transA=flip_left,
        transB=flip_right,
        alpha=g.dice.choice((1.0, 0.5)),
    )


def _window(g: RandomGraph, axes: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if g.dice.random() < 0.6:
        made["strides"] = [g.dice.choice((1, 2, 3)) for _ in range(axes)]
    if g.dice.random() < 0.5:
        made["pads"] = [g.dice.choice((0, 1, 1, 2)) for _ in range(2 * axes)]
    elif g.dice.random() < 0.3:
        made["auto_pad"] = g.dice.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return made


def _convolution(g: RandomGraph) -> None:
    name = g.pick(least=3)
    value = g.values[name]
    axes, channels = value.ndim - 2, value.shape[1]
    groups = g.dice.choice([d for d in range(1, channels + 1) if channels % d == 0])
    kernel = [g.dice.choice((1, 2, 3, 3)) for _ in range(axes)]
    results = groups * g.dice.choice((1, 2, 4))
    made = _window(g, axes)
    if g.dice.random() < 0.3:
        made["dilations"] = [g.dice.choice((1, 2)) for _ in range(axes)]
    is_transposed = g.dice.random() < 0.35
    if is_transposed:
        shape = [channels, results // groups, *kernel]
        if g.dice.random() < 0.3:
            made["output_padding"] = [g.dice.choice((0, 1)) for _ in range(axes)]
    else:
        shape = [results, channels // groups, *kernel]
    dtype = value.dtype.name
    weights = g.numbers(shape, dtype)
    parts = [name, g._fed(weights) if g.dice.random() < 0.15 else g.constant(weights)]
    if g.dice.random() < 0.5:
        parts.append(g.constant(g.numbers((results,), dtype)))
    g.node("ConvTranspose" if is_transposed else "Conv", parts, group=groups, **made)


def _pool(g: RandomGraph) -> None:
    name = g.pick(least=3)
    axes = g.values[name].ndim - 2
    kind = g.dice.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if kind.startswith("Global"):
        g.node(kind, [name])
        return
    made = _window(g, axes)
    made["kernel_shape"] = [g.dice.choice((1, 2, 3)) for _ in range(axes)]
    if "auto_pad" not in made:
        made["ceil_mode"] = g.dice.randrange(2)
    if kind == "AveragePool":
        made["count_include_pad"] = g.dice.randrange(2)
    g.node(kind, [name], **made)


def _normalise(g: RandomGraph) -> None:
    name = g.pick(least=2)
    value = g.values[name]
    dtype = value.dtype.name
    kind = g.dice.choice(("BatchNormalization", "InstanceNormalization", "LayerNormalization"))
    if kind == "LayerNormalization":
        axis = g.axis(name)
        shape = value.shape[axis:]
        extra = [g.constant(g.numbers(shape, dtype)) for _ in range(2)]
        g.node(kind, [name, *extra], axis=axis)
        return
    channels = (value.shape[1],)
    extra = [g.constant(g.numbers(channels, dtype)) for _ in range(2)]
    if kind == "BatchNormalization":
        extra.append(g.constant(g.numbers(channels, dtype)))
        extra.append(g.constant(np.abs(g.numbers(channels, dtype)) + np.asarray(0.1, dtype)))
    g.node(kind, [name, *extra])


def _clip(g: RandomGraph) -> None:
    name = g.pick("fi")
    dtype = g.values[name].dtype
    low, high = (
        np.asarray(value, dtype) for value in ((-0.5, 0.5) if dtype.kind == "f" else (1, 6))
    )
    bounds = g.dice.choice(([low, high], [low, None], [None, high]))
    g.node("Clip", [name, *("" if value is None else g.constant(value) for value in bounds)])


def _prelu(g: RandomGraph) -> None:
    name = g.pick(least=1)
    value = g.values[name]
    shape = g.dice.choice(((1,), value.shape[1:2] + (1,) * max(0, value.ndim - 2)))
    g.node("PRelu", [name, g.constant(g.numbers(shape, value.dtype.name))])


def _resize(g: RandomGraph) -> None:
    name = g.pick(least=3, most=4)
    factors = [1.0, 1.0, *(g.dice.choice((1.0, 2.0, 3.0)) for _ in g.values[name].shape[2:])]
    scales = g.constant(np.array(factors, "float32"))
    g.node(
        "Resize",
        [name, "", scales],
        mode=g.dice.choice(("nearest", "linear")),
        coordinate_transformation_mode=g.dice.choice(("asymmetric", "half_pixel")),
        nearest_mode="floor",
    )


def _space(g: RandomGraph) -> None:
    name = g.pick(least=4, most=4)
    g.node(g.dice.choice(("DepthToSpace", "SpaceToDepth")), [name], blocksize=2)


def _cumulate(g: RandomGraph) -> None:
    name = g.pick(least=1)
    ways = {"exclusive": g.dice.randrange(2), "reverse": g.dice.randrange(2)}
    g.node("CumSum", [name, g.constant(np.array(g.axis(name), "int64"))], **ways)


GROWERS: tuple[Callable[[RandomGraph], None], ...] = (
    *(_unary, _root, _round, _cast, _binary, _binary, _divide, _compare, _logic, _where, _reduce),
    *(_arg, _softmax, _concat, _split, _slice, _pad, _transpose, _transpose, _reshape, _squeeze),
    *(_expand, _gather, _matmul, _matmul, _gemm, _convolution, _convolution, _convolution, _pool),
    *(_normalise, _clip, _prelu, _resize, _space, _cumulate),
)
