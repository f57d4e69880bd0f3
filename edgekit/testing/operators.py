"""Random small ONNX models, a family for each kind of operator that libraries take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Case:
    """Nodes in a row; `x0`, `x1` are inputs, what a node makes is `y0`, `y1` and so on."""

    inputs: list[tuple[int, ...]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    stays: tuple[str, ...] = ()
    """Operators that ncnn may leave to TVM."""
    makes: int = TensorProto.FLOAT
    seed: int = 0

    def __repr__(self) -> str:
        nodes = "; ".join(
            f"{n.op_type}({', '.join(n.input)}"
            + "".join(f", {a.name}={helper.get_attribute_value(a)}" for a in n.attribute)
            + ")"
            for n in self.nodes
        )
        shapes = {name: value.shape for name, value in self.constants.items()}
        return f"Case({self.inputs}, {nodes}, {shapes})"

    def constant(self, value: Any, dtype: str = "float32") -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        random = np.random.default_rng((self.seed, len(self.constants)))
        return self.constant(random.uniform(low, high, shape))

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "case",
            [
                helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape)
                for i, shape in enumerate(self.inputs)
            ],
            [
                helper.make_tensor_value_info(name, self.makes, None)
                for name in self.nodes[-1].output
            ],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9
        )

    def values(self) -> list[np.ndarray]:
        random = np.random.default_rng(self.seed)
        return [random.standard_normal(shape).astype("float32") * 2 for shape in self.inputs]


CHANNELS = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 32))
EXTENT = st.integers(1, 19)
SEED = st.integers(0, 2**16)


def activate(draw: Draw, case: Case, value: str) -> str:
    """One of the functions that a layer of ncnn's computes along, or none."""
    kind = draw(st.sampled_from(("", "Relu", "LeakyRelu", "Clip", "Sigmoid", "Mish", "HardSwish")))
    if kind == "Clip":
        low = draw(st.floats(-2, 0.5, width=32))
        bounds = [case.constant(low), case.constant(low + draw(st.floats(0, 3, width=32)))]
        return case.node("Clip", [value, *bounds])
    if kind == "LeakyRelu":
        return case.node(kind, [value], alpha=draw(st.floats(-0.5, 1.5, width=32)))
    return case.node(kind, [value]) if kind else value


@st.composite
def convolutions(draw: Draw) -> Case:
    rank = draw(st.sampled_from((1, 2, 2, 2)))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 4, 8, 16)))
    members = draw(st.sampled_from((1, 1, 2, 3, 4))), draw(st.sampled_from((1, 1, 2, 3, 4)))
    if groups == 1:
        members = draw(CHANNELS), draw(CHANNELS)
    inputs, outputs = groups * members[0], groups * members[1]
    kernel = [draw(st.integers(1, 5)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    extents = [draw(st.integers(span, span + 15)) for span in spans]
    case = Case([(1, inputs, *extents)], seed=draw(SEED))
    window = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": groups}
    if transposed:
        pads = [draw(st.integers(0, (span - 1) // 2)) for span in spans * 2]
        weight = case.weight(inputs, members[1], *kernel)
        # What TVM cuts off afterwards may be a whole axis, which it leaves in place.
        case.stays = ("strided_slice",)
    else:
        pads = [draw(st.integers(0, 3)) for _ in spans * 2]
        weight = case.weight(outputs, members[0], *kernel)
    bias = [case.weight(outputs)] if draw(st.booleans()) else []
    operator = "ConvTranspose" if transposed else "Conv"
    value = case.node(operator, ["x0", weight, *bias], pads=pads, **window)
    activate(draw, case, value)
    return case


@st.composite
def products(draw: Draw) -> Case:
    inner, outer = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    lead = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    case = Case([(*lead, inner)], seed=draw(SEED))
    kind = draw(st.sampled_from(("dense", "dense", "gemm", "two", "left")))
    if kind == "two":
        case.inputs.append((*lead[:-1], inner, outer))
        case.node("MatMul", ["x0", "x1"])
    elif kind == "left":
        case.node("MatMul", [case.weight(outer, lead[-1]), "x0"])
        # The constant is one matrix, what comes in may be a stack.
        case.stays = ("matmul",)
    elif kind == "gemm":
        case.inputs = [(lead[0], inner)]
        weights = [case.weight(outer, inner), case.weight(outer)]
        activate(draw, case, case.node("Gemm", ["x0", *weights], transB=1))
    else:
        value = case.node("MatMul", ["x0", case.weight(inner, outer)])
        if draw(st.booleans()):
            value = case.node("Add", [value, case.weight(outer)])
        activate(draw, case, value)
    return case


@st.composite
def poolings(draw: Draw) -> Case:
    rank = draw(st.sampled_from((1, 2, 2)))
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    extents = [draw(st.integers(k, k + 12)) for k in kernel]
    case = Case([(1, draw(CHANNELS), *extents)], seed=draw(SEED))
    operator = draw(st.sampled_from(("MaxPool", "AveragePool", "GlobalAveragePool")))
    if operator == "GlobalAveragePool":
        case.node(operator, ["x0"])
        return case
    window: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in kernel],
        "pads": [draw(st.integers(0, k - 1)) for k in kernel * 2],
        "ceil_mode": draw(st.integers(0, 1)),
    }
    if operator == "AveragePool":
        window["count_include_pad"] = draw(st.integers(0, 1))
        # Counting what lies beyond the padding is no rule of ncnn's.
        case.stays = ("nn.avg_pool1d", "nn.avg_pool2d")
    case.node(operator, ["x0"], **window)
    return case


@st.composite
def pairs(draw: Draw) -> Case:
    """Two tensors, one of them perhaps constant, that numpy would broadcast."""
    full = (1, *draw(st.lists(st.sampled_from((1, 2, 3, 4, 5, 8, 16)), min_size=1, max_size=4)))
    shapes = []
    for _ in range(2):
        own = tuple(extent if draw(st.booleans()) else 1 for extent in full)
        shapes.append(own[draw(st.integers(0, len(own) - 1)) :])
    if draw(st.booleans()):
        shapes[0] = full
    operator = draw(st.sampled_from(("Add", "Sub", "Mul", "Div", "Max", "Min")))
    case = Case([shapes[0]], seed=draw(SEED))
    if draw(st.booleans()):
        # Far from zero: quotients stay in float's range.
        names = ["x0", case.weight(*shapes[1], low=0.5, high=2.0)]
    else:
        case.inputs.append(shapes[1])
        names = ["x0", "x1"]
    if operator == "Div" and names[1] == "x1":
        names[1] = case.node("Exp", ["x1"])
    case.node(operator, names[:: draw(st.sampled_from((1, -1)))] if operator != "Div" else names)
    return case


SHAPE = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(lambda axes: (1, *axes))
ELEMENTWISE = (
    *(
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "Elu",
        "Softplus",
    ),
    *("Erf", "Gelu", "Abs", "Neg", "Floor", "Ceil", "Round", "Exp"),
)


@st.composite
def functions(draw: Draw) -> Case:
    case = Case([draw(SHAPE)], seed=draw(SEED))
    operator = draw(st.sampled_from((*ELEMENTWISE, "Clip", "PRelu", "Swish", "Sqrt")))
    if operator == "Clip":
        case.node("Clip", ["x0", case.constant(-0.75), case.constant(1.25)])
    elif operator == "PRelu":
        channels = case.inputs[0][1]
        ones = (1,) * (len(case.inputs[0]) - 2)
        case.node("PRelu", ["x0", case.weight(channels, *ones)])
    elif operator == "Swish":
        case.node("Mul", ["x0", case.node("Sigmoid", ["x0"])])
    elif operator == "Sqrt":
        case.node("Sqrt", [case.node("Abs", ["x0"])])
    else:
        case.node(operator, ["x0"])
    return case


@st.composite
def normalisations(draw: Draw) -> Case:
    case = Case([draw(SHAPE)], seed=draw(SEED))
    shape = case.inputs[0]
    kinds = ["LayerNormalization", "Softmax", "BatchNormalization"]
    if math.prod(shape[2:]) > 1:
        # Of single elements onnxruntime itself makes more than rounding errors.
        kinds.append("InstanceNormalization")
    kind = draw(st.sampled_from(kinds))
    if kind == "Softmax":
        case.node(kind, ["x0"], axis=draw(st.integers(1, len(shape) - 1)))
    elif kind == "LayerNormalization":
        axis = draw(st.integers(1, len(shape) - 1))
        affine = [case.weight(*shape[axis:], low=0.5), case.weight(*shape[axis:])]
        case.node(kind, ["x0", *affine], axis=axis)
        # Constants of one element are folded into other forms.
        case.stays = ("nn.layer_norm",)
    else:
        names = [case.weight(shape[1], low=0.5) for _ in range(2)]
        if kind == "BatchNormalization":
            names += [case.weight(shape[1]), case.weight(shape[1], low=0.1)]
        case.node(kind, ["x0", *names])
    return case


@st.composite
def movements(draw: Draw) -> Case:
    case = Case([draw(SHAPE)], seed=draw(SEED))
    shape = case.inputs[0]
    rank = len(shape)
    axis = draw(st.integers(1, rank - 1))
    kind = draw(st.sampled_from(("Transpose", "Concat", "Slice", "Pad", "Reshape", "Split")))
    if kind == "Transpose":
        order = draw(st.permutations(range(rank)))
        case.node(kind, ["x0"], perm=order)
        if rank == 5 and order[0] != 0:
            case.stays = ("permute_dims",)  # five axes, and none of them a batch of one in front
    elif kind == "Concat":
        own = list(shape)
        own[axis] = draw(st.integers(1, 9))
        case.inputs.append(tuple(own))
        case.node(kind, draw(st.permutations(["x0", "x1", "x0"])), axis=axis)
    elif kind == "Slice":
        start = draw(st.integers(0, shape[axis] - 1))
        stop = draw(st.integers(start + 1, shape[axis]))
        limits = [case.constant([number], "int64") for number in (start, stop, axis)]
        case.node(kind, [case.node("Relu", ["x0"]), *limits])
    elif kind == "Pad":
        pads = [0] * (2 * rank)
        for place in range(max(1, rank - 3), rank):
            pads[place], pads[rank + place] = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        value = draw(st.floats(-2, 2, width=32))
        case.node(kind, ["x0", case.constant(pads, "int64"), case.constant(value)])
    elif kind == "Reshape":
        flat = [1, *draw(st.permutations(shape[1:])), -1]
        case.node(
            kind, [case.node("Relu", ["x0"]), case.constant([*flat[: rank - 1], -1], "int64")]
        )
    else:
        sizes = (shape[axis] - shape[axis] // 2, shape[axis] // 2)
        if not sizes[1]:
            case.node("Relu", ["x0"])
            return case
        ends = case.constant(sizes, "int64")
        case.nodes.append(helper.make_node(kind, ["x0", ends], ["y0", "z0"], axis=axis))
        turned = case.node("Concat", ["z0", "y0"], axis=axis)
        case.node("Relu", [turned])
    return case


@st.composite
def reductions(draw: Draw) -> Case:
    case = Case([draw(SHAPE)], seed=draw(SEED))
    rank = len(case.inputs[0])
    axes = draw(st.lists(st.integers(1, rank - 1), min_size=1, max_size=rank, unique=True))
    operators = ["ReduceSum", "ReduceMean"]
    if math.prod(case.inputs[0]) < 64:
        operators.append("ReduceProd")  # of more numbers it leaves float's range, here or there
    operator = draw(st.sampled_from(operators))
    keep = draw(st.integers(0, 1))
    case.node(operator, ["x0", case.constant(sorted(axes), "int64")], keepdims=keep)
    return case


@st.composite
def places(draw: Draw) -> Case:
    """Where the largest of a row is; of several that are equal, the first or the last."""
    shape, axis = [1] * draw(st.integers(1, 4)), draw(st.integers(0, 3))
    axis %= len(shape)
    shape[axis] = draw(st.integers(1, 40))
    case = Case([tuple(shape)], makes=TensorProto.INT64, seed=draw(SEED))
    # Few different numbers, of which many are equal.
    value = case.node("Floor", ["x0"])
    rules = {"keepdims": draw(st.integers(0, 1)), "select_last_index": draw(st.integers(0, 1))}
    case.node("ArgMax", [value], axis=axis - draw(st.sampled_from((0, len(shape)))), **rules)
    return case


@st.composite
def resizings(draw: Draw) -> Case:
    extents = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    case = Case([(1, draw(CHANNELS), *extents)], seed=draw(SEED))
    factors = [float(draw(st.integers(1, 7))) for _ in extents]
    scales = case.constant([1.0, 1.0, *factors])
    rules = draw(
        st.sampled_from(
            (
                {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
                | {"nearest_mode": "floor"},
                {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
                {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
                {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
            )
        )
    )
    case.node("Resize", ["x0", "", scales], **rules)
    # A row or a column alone, with aligned corners, is picked out instead.
    case.stays = ("image.resize2d", "take", "multiply", "add")
    return case


FAMILIES: dict[str, Callable[[], st.SearchStrategy[Case]]] = {
    "convolutions": convolutions,
    "products": products,
    "poolings": poolings,
    "pairs": pairs,
    "functions": functions,
    "normalisations": normalisations,
    "movements": movements,
    "reductions": reductions,
    "places": places,
    "resizings": resizings,
}
