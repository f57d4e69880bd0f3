"""ONNX models built here compute, imported and compiled, what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.deployed import run_deployed
from support.examples import examples
from support.onnx_models import judged_by_onnxruntime

from edgekit.backends.offloading import compile_model
from edgekit.base.errors import UnsupportedModelError
from edgekit.base.events import SILENT
from edgekit.models.model import Model, import_model, open_model, scan_model
from edgekit.profiles.board import load_board

RANDOM = np.random.default_rng(11)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
F32 = np.float32


@dataclass(frozen=True)
class Sketch:
    """A graph to be: nodes, shapes of inputs (or a dtype and a shape), values of weights."""

    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, Any]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    opset: int = 17
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    functions: Sequence[onnx.FunctionProto] = ()
    output_type: int = FLOAT


def proto(sketch: Sketch) -> onnx.ModelProto:
    def declared(name: str, kind: Any) -> onnx.ValueInfoProto:
        element, shape = kind if isinstance(kind, tuple) else (FLOAT, kind)
        return helper.make_tensor_value_info(name, element, shape)

    graph = helper.make_graph(
        list(sketch.nodes),
        "test",
        [declared(name, kind) for name, kind in sketch.inputs.items()],
        [helper.make_tensor_value_info(name, sketch.output_type, None) for name in sketch.outputs],
        [numpy_helper.from_array(value, name) for name, value in sketch.weights.items()],
    )
    domains = {item.domain for item in sketch.nodes if item.domain}
    opsets = [helper.make_opsetid("", sketch.opset)]
    opsets.extend(helper.make_opsetid(domain, 1) for domain in sorted(domains))
    return helper.make_model(
        graph, ir_version=8, opset_imports=opsets, functions=list(sketch.functions)
    )


def imported(sketch: Sketch, folder: Path, **shapes: tuple[int, ...]) -> Model:
    path = folder / "model.onnx"
    onnx.save(proto(sketch), path)
    return import_model(open_model(path, shapes, sketch.constants), SILENT)


def fill(model: Model, positive: bool = False) -> dict[str, np.ndarray]:
    feeds = {}
    for spec in model.inputs:
        if spec.dtype.startswith("float"):
            values = RANDOM.standard_normal(spec.shape)
            feeds[spec.name] = (np.abs(values) + 0.1 if positive else values).astype(spec.dtype)
        else:
            feeds[spec.name] = RANDOM.integers(0, 2, spec.shape).astype(spec.dtype)
    return feeds


def computed(model: Model, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    compiled = compile_model(model, load_board("local").target)
    return run_deployed(compiled, [feeds[spec.name] for spec in model.inputs])


def agrees(
    sketch: Sketch, folder: Path, feeds: Mapping[str, np.ndarray] | None = None, **shapes: Any
) -> Model:
    model = imported(sketch, folder, **shapes)
    given = fill(model) if feeds is None else feeds
    wanted = judged_by_onnxruntime(proto(sketch), {**given, **sketch.constants})
    ours = computed(model, given)
    for spec, actual, expected in zip(model.outputs, ours, wanted, strict=True):
        assert spec.shape == expected.shape
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    return model


def operators(model: Model) -> list[str]:
    from tvm.relax.analysis import post_order_visit

    found: list[str] = []

    def visit(expr: Any) -> None:
        name = getattr(getattr(expr, "op", None), "name", None)
        if name:
            found.append(name)

    post_order_visit(model.module["main"], visit)
    return found


def node(*words: Any, **attributes: Any) -> onnx.NodeProto:
    """`node("Add", "a b", "y")`"""
    operator, inputs, outputs = words
    read = [] if not inputs else ["" if name == "-" else name for name in inputs.split()]
    written = ["" if name == "-" else name for name in outputs.split()]
    return helper.make_node(operator, read, written, **attributes)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: RANDOM.standard_normal(shape).astype(F32) for name, shape in shapes.items()}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CONV = weights(w=(8, 3, 3, 3), b=(8,))
IMAGE = {"x": [1, 3, 8, 9]}

SKETCHES = {
    "relu6": Sketch(
        [node("Conv", "x w b", "c", pads=[1] * 4), node("Clip", "c lo hi", "y")],
        IMAGE,
        {**CONV, "lo": np.array(0, F32), "hi": np.array(6, F32)},
    ),
    "clip of opset 6": Sketch([node("Clip", "x", "y", min=-0.5)], IMAGE, opset=6),
    "softmax of opset 11": Sketch([node("Softmax", "x", "y", axis=2)], IMAGE, opset=11),
    "strided same-lower convolution": Sketch(
        [node("Conv", "x w", "y", strides=[2, 2], auto_pad="SAME_LOWER")], IMAGE, CONV
    ),
    "uneven padding": Sketch([node("Conv", "x w b", "y", pads=[0, 1, 2, 1])], IMAGE, CONV),
    "one-dimensional convolution": Sketch(
        [node("Conv", "x w", "y", dilations=[2])], {"x": [2, 4, 12]}, weights(w=(6, 4, 3))
    ),
    "grouped transposed convolution": Sketch(
        [node("ConvTranspose", "x w b", "y", group=2, strides=[2, 3], output_padding=[1, 0])],
        {"x": [1, 4, 5, 4]},
        weights(w=(4, 3, 3, 2), b=(6,)),
    ),
    "transposed convolution, uneven": Sketch(
        [node("ConvTranspose", "x w", "y", strides=[2, 2], pads=[0, 1, 1, 0], dilations=[2, 1])],
        {"x": [1, 3, 6, 5]},
        weights(w=(3, 2, 3, 3)),
    ),
    "transposed convolution along one axis": Sketch(
        [node("ConvTranspose", "x w", "y", strides=[3], pads=[1, 2])],
        {"x": [1, 3, 6]},
        weights(w=(3, 2, 4)),
    ),
    "average pooling over the edge": Sketch(
        [
            node(
                "AveragePool",
                "x",
                "y",
                kernel_shape=[3, 3],
                strides=[2, 2],
                pads=[1, 1, 0, 0],
                ceil_mode=1,
            )
        ],
        IMAGE,
    ),
    "average pooling that counts the padding": Sketch(
        [node("AveragePool", "x", "y", kernel_shape=[3, 2], pads=[1] * 4, count_include_pad=1)],
        IMAGE,
    ),
    "max pooling with places": Sketch(
        [node("MaxPool", "x", "m y", kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 1, 1])],
        IMAGE,
        output_type=INT64,
    ),
    "norm pooling": Sketch([node("LpPool", "x", "y", kernel_shape=[2, 2], p=2)], IMAGE),
    "batch norm": Sketch(
        [node("BatchNormalization", "x s b m v", "y", epsilon=1e-3)],
        IMAGE,
        {**weights(s=(3,), b=(3,), m=(3,)), "v": np.array([0.5, 1, 2], F32)},
    ),
    "group norm by layers": Sketch(
        [node("InstanceNormalization", "x s b", "y")], IMAGE, weights(s=(3,), b=(3,))
    ),
    "layer norm over two axes": Sketch(
        [node("LayerNormalization", "x s b", "y", axis=-2)], IMAGE, weights(s=(8, 9), b=(8, 9))
    ),
    "layer norm with a scale that spreads": Sketch(
        [node("LayerNormalization", "x s", "y", axis=1)], IMAGE, weights(s=(9,))
    ),
    "local response": Sketch([node("LRN", "x", "y", size=3)], IMAGE),
    "dense with everything": Sketch(
        [node("Gemm", "x w b", "y", alpha=0.5, beta=2.0, transA=1, transB=1)],
        {"x": [4, 3]},
        weights(w=(5, 4), b=(5,)),
    ),
    "reshape by a shape that is computed": Sketch(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Concat", "n rest", "t", axis=0),
            node("Reshape", "x t", "y"),
        ],
        {"x": ["n", 4, 2]},
        {"zero": ints(0), "rest": ints(-1)},
    ),
    "resize of opset 11": Sketch(
        [
            node("Shape", "x", "s"),
            node("Slice", "s zero two", "head"),
            node("Concat", "head size", "sizes", axis=0),
            node("Resize", "x roi none sizes", "y", mode="nearest", nearest_mode="floor"),
        ],
        IMAGE,
        {
            "zero": ints(0),
            "two": ints(2),
            "size": ints(16, 18),
            "roi": np.zeros(0, F32),
            "none": np.zeros(0, F32),
        },
        opset=11,
    ),
    "resize to odd sizes": Sketch(
        [node("Resize", "x - - sizes", "y", mode="linear")],
        IMAGE,
        {"sizes": ints(1, 3, 13, 5)},
    ),
    "cubic resize": Sketch(
        [node("Resize", "x - scales", "y", mode="cubic", cubic_coeff_a=-0.5)],
        IMAGE,
        {"scales": np.array([1, 1, 1.7, 0.6], F32)},
    ),
    "aligned resize": Sketch(
        [
            node(
                "Resize",
                "x - scales",
                "y",
                mode="linear",
                coordinate_transformation_mode="align_corners",
            )
        ],
        IMAGE,
        {"scales": np.array([1, 1, 2, 2], F32)},
    ),
    "aligned resize to one row": Sketch(
        [
            node(
                "Resize",
                "x - - sizes",
                "y",
                mode="linear",
                coordinate_transformation_mode="align_corners",
            )
        ],
        IMAGE,
        {"sizes": ints(1, 3, 1, 12)},
    ),
    "upsample of opset 9": Sketch(
        [node("Upsample", "x scales", "y", mode="nearest")],
        IMAGE,
        {"scales": np.array([1, 1, 2, 3], F32)},
        opset=9,
    ),
    "pad, cut and reflect": Sketch(
        [
            node("Pad", "x pads", "p", mode="reflect"),
            node("Pad", "p cuts value", "y"),
        ],
        IMAGE,
        {
            "pads": ints(0, 0, 2, 3, 0, 0, 1, 0),
            "cuts": ints(0, 1, -2, 0, 0, 0, 3, -1),
            "value": np.array(0.5, F32),
        },
    ),
    "top and bottom": Sketch(
        [node("TopK", "x k", "y i", axis=1, largest=0)], {"x": [2, 7]}, {"k": ints(3)}
    ),
    "indices from the end": Sketch(
        [node("Gather", "x i", "y", axis=1)], {"x": [2, 5]}, {"i": np.array([[-1, 0], [2, -5]])}
    ),
    "scatter of rows": Sketch(
        [node("ScatterND", "x i u", "y")],
        {"x": [5, 3], "u": [2, 3]},
        {"i": np.array([[4], [1]], np.int64)},
    ),
    "einsum": Sketch(
        [node("Einsum", "x w", "y", equation="bij,bkj->bik")], {"x": [2, 3, 4], "w": [2, 5, 4]}
    ),
    "einsum with dots and a diagonal": Sketch(
        [node("Einsum", "x w", "y", equation="...ii,ij->...j")], {"x": [2, 3, 3], "w": [3, 4]}
    ),
    "logarithm of sums": Sketch([node("ReduceLogSumExp", "x", "y", axes=[1, 3])], IMAGE),
    "lstm, both ways": Sketch(
        [node("LSTM", "x w r b - h c p", "s y e", direction="bidirectional", hidden_size=4)],
        {"x": [3, 2, 5]},
        weights(w=(2, 16, 5), r=(2, 16, 4), b=(2, 32), h=(2, 2, 4), c=(2, 2, 4), p=(2, 12)),
        outputs=("s", "y", "e"),
    ),
    "lstm of sequences of different lengths": Sketch(
        [node("LSTM", "x w r b n", "y", hidden_size=4)],
        {"x": [4, 3, 5]},
        {**weights(w=(1, 16, 5), r=(1, 16, 4), b=(1, 32)), "n": np.array([4, 2, 1], np.int32)},
    ),
    "gru, reset after, backwards": Sketch(
        [
            node(
                "GRU",
                "x w r b",
                "s y",
                hidden_size=4,
                linear_before_reset=1,
                direction="reverse",
            )
        ],
        {"x": [3, 2, 5]},
        weights(w=(1, 12, 5), r=(1, 12, 4), b=(1, 24)),
        outputs=("s", "y"),
    ),
    "gru, reset before": Sketch(
        [node("GRU", "x w r b", "- y", hidden_size=4)],
        {"x": [3, 2, 5]},
        weights(w=(1, 12, 5), r=(1, 12, 4), b=(1, 24)),
    ),
    "rnn with relu": Sketch(
        [node("RNN", "x w r", "- y", hidden_size=4, activations=["Relu"])],
        {"x": [3, 2, 5]},
        weights(w=(1, 4, 5), r=(1, 4, 4)),
    ),
    "prelu along channels": Sketch([node("PRelu", "x s", "y")], IMAGE, weights(s=(3, 1, 1))),
    "gelu after a bias": Sketch(
        [node("BiasGelu", "x b", "y", domain="com.microsoft")], {"x": [2, 5]}, weights(b=(5,))
    ),
    "fast gelu": Sketch([node("FastGelu", "x", "y", domain="com.microsoft")], {"x": [2, 5]}),
    "skip and layer norm": Sketch(
        [node("SkipLayerNormalization", "x k s b c", "y - - t", domain="com.microsoft")],
        {"x": [1, 2, 6], "k": [1, 2, 6]},
        weights(s=(6,), b=(6,), c=(6,)),
        outputs=("y", "t"),
    ),
    "fused matrix product": Sketch(
        [node("FusedMatMul", "x w", "y", domain="com.microsoft", transA=1, transB=1, alpha=0.5)],
        {"x": [2, 4, 3]},
        weights(w=(2, 5, 4)),
    ),
    "grid sampling": Sketch(
        [node("GridSample", "x g", "y", padding_mode="border", align_corners=1)],
        {"x": [1, 2, 5, 6], "g": [1, 3, 4, 2]},
    ),
    "sequences that vanish": Sketch(
        [
            node("SplitToSequence", "x", "s", axis=1, keepdims=0),
            node("SequenceAt", "s one", "y"),
        ],
        {"x": [3, 4]},
        {"one": np.array(1, np.int64)},
    ),
}


@pytest.mark.parametrize("name", SKETCHES)
def test_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    sketch = SKETCHES[name]
    shapes = {"x": (3, 4, 2)} if "n" in next(iter(sketch.inputs.values())) else {}
    agrees(sketch, tmp_path, **shapes)


def test_broadcasting_along_an_axis_as_before_opset_7(tmp_path: Path) -> None:
    bias = np.array([1, 2, 3], F32)
    add = node("Add", "x b", "y", broadcast=1, axis=1)
    model = imported(Sketch([add], IMAGE, {"b": bias}, opset=6), tmp_path)
    feeds = fill(model)
    wanted = feeds["x"] + bias[:, None, None]
    np.testing.assert_allclose(computed(model, feeds)[0], wanted, rtol=1e-6)


def branch(operator: str) -> onnx.GraphProto:
    return helper.make_graph(
        [node(operator, "x", f"{operator}_out")],
        operator,
        [],
        [helper.make_tensor_value_info(f"{operator}_out", FLOAT, None)],
    )


CHOICE = Sketch(
    [node("If", "flag", "y", then_branch=branch("Neg"), else_branch=branch("Abs"))],
    {"x": [2, 3], "flag": (BOOL, [])},
)


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_is_decided_when_the_model_runs(flag: bool, tmp_path: Path) -> None:
    feeds = {"x": RANDOM.standard_normal((2, 3)).astype(F32), "flag": np.array(flag)}
    model = agrees(CHOICE, tmp_path, feeds)
    assert any("decided when the model runs" in repair for repair in model.repairs)


def test_a_branch_that_is_known_is_taken_and_the_other_is_gone(tmp_path: Path) -> None:
    bound = Sketch(CHOICE.nodes, CHOICE.inputs, constants={"flag": np.array(True)})
    model = agrees(bound, tmp_path)
    assert [spec.name for spec in model.inputs] == ["x"]
    assert operators(model) == ["relax.negative"]


def test_a_loop_with_a_known_count_is_written_out(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            node("Identity", "go", "again"),
            node("Add", "state x", "next"),
            node("Abs", "next", "out"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("again", BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [2]),
            helper.make_tensor_value_info("out", FLOAT, [2]),
        ],
    )
    sketch = Sketch(
        [node("Loop", "count - start", "y all", body=body)],
        {"x": [2], "count": (INT64, [])},
        {"start": np.ones(2, F32)},
        outputs=("y", "all"),
        constants={"count": np.array(3)},
    )
    agrees(sketch, tmp_path)


def test_a_body_mapped_over_a_sequence_reads_the_graph_around_it(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", "item w", "moved"), node("Mul", "moved beside", "scaled")],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("item", "beside")],
        [helper.make_tensor_value_info("scaled", FLOAT, [4])],
    )
    sketch = Sketch(
        [
            node("SequenceConstruct", "x z", "s"),
            node("SequenceMap", "s z", "t", body=body),
            node("ConcatFromSequence", "t", "y", axis=0),
        ],
        {"x": [4], "z": [4]},
        weights(w=(4,)),
    )
    agrees(sketch, tmp_path)


def test_updates_larger_than_the_indices_that_use_them_are_cut(tmp_path: Path) -> None:
    sketch = Sketch(
        [node("ScatterElements", "x i u", "y", axis=0)],
        {"x": [4, 4], "u": [3, 4]},
        {"i": np.array([[0, 1], [2, 3]])},
    )
    model = imported(sketch, tmp_path)
    feeds = fill(model)
    expected = feeds["x"].copy()
    for (row, column), place in np.ndenumerate(sketch.weights["i"]):
        expected[place, column] = feeds["u"][row, column]
    np.testing.assert_array_equal(computed(model, feeds)[0], expected)


def test_functions_of_the_model_are_written_out(tmp_path: Path) -> None:
    scaled = helper.make_function(
        "own",
        "Scaled",
        ["a"],
        ["b"],
        [node("LeakyRelu", "a", "c"), node("Neg", "c", "b")],
        [helper.make_opsetid("", 17)],
        attributes=["alpha"],
    )
    reference = scaled.node[0].attribute.add()
    reference.name, reference.ref_attr_name = "alpha", "alpha"
    reference.type = onnx.AttributeProto.FLOAT
    call = helper.make_node("Scaled", ["x"], ["y"], domain="own", alpha=0.3)
    agrees(Sketch([call], {"x": [2, 3]}, functions=[scaled]), tmp_path)


def test_nodes_out_of_order_are_put_right_and_it_is_said(tmp_path: Path) -> None:
    sketch = Sketch([node("Neg", "a", "y"), node("Abs", "x", "a")], {"x": [4]})
    model = imported(sketch, tmp_path)
    x = RANDOM.standard_normal(4).astype(F32)
    np.testing.assert_array_equal(computed(model, {"x": x})[0], -np.abs(x))
    assert any("order" in repair for repair in model.repairs)


def test_relu6_is_one_operator_that_backends_recognise(tmp_path: Path) -> None:
    found = operators(imported(SKETCHES["relu6"], tmp_path))
    assert "relax.clip" in found
    assert not {"relax.call_tir", "relax.minimum", "relax.maximum"} & set(found)


def test_batch_norm_stays_an_operator_for_the_pass_that_folds_it(tmp_path: Path) -> None:
    assert "relax.nn.batch_norm" in operators(imported(SKETCHES["batch norm"], tmp_path))


QUANTISED_WEIGHT = {
    # Beyond 7 bits, onnxruntime's kernel for uint8 saturates on a CPU without VNNI.
    "w": RANDOM.integers(-64, 64, (4, 3, 3, 3)).astype(np.int8),
    "ws": np.array([0.01, 0.02, 0.03, 0.04], F32),
    "wz": np.zeros(4, np.int8),
    "s": np.array(0.05, F32),
    "z": np.array(3, np.uint8),
    "os": np.array(0.2, F32),
    "oz": np.array(100, np.uint8),
}


def test_quantised_weights_stay_quantised(tmp_path: Path) -> None:
    sketch = Sketch(
        [
            node("QuantizeLinear", "x s z", "q"),
            node("DequantizeLinear", "q s z", "d"),
            node("DequantizeLinear", "w ws wz", "dw", axis=0),
            node("Conv", "d dw", "y"),
        ],
        IMAGE,
        QUANTISED_WEIGHT,
    )
    model = agrees(sketch, tmp_path)
    assert operators(model).count("relax.dequantize") == 2
    assert operators(model).count("relax.quantize") == 1


def test_a_quantised_convolution_lands_within_a_step_of_onnxruntime(tmp_path: Path) -> None:
    sketch = Sketch(
        [node("QLinearConv", "q s z w ws wz os oz", "y", pads=[1] * 4)],
        {"q": (TensorProto.UINT8, [1, 3, 8, 9])},
        QUANTISED_WEIGHT,
        output_type=TensorProto.UINT8,
    )
    model = imported(sketch, tmp_path)
    feeds = {"q": RANDOM.integers(0, 255, (1, 3, 8, 9)).astype(np.uint8)}
    wanted = judged_by_onnxruntime(proto(sketch), feeds)[0].astype(int)
    assert np.abs(computed(model, feeds)[0].astype(int) - wanted).max() <= 1
    assert {"relax.quantize", "relax.dequantize"} <= set(operators(model))


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-3, -2, -1, 1, 2, 3])),
        min_size=1,
        max_size=3,
    )
)
def test_any_slice_is_numpys_slice(
    tmp_path_factory: pytest.TempPathFactory, limits: list[tuple[int, int, int]]
) -> None:
    starts, ends, steps = (ints(*column) for column in zip(*limits, strict=True))
    sketch = Sketch(
        [node("Slice", "x starts ends axes steps", "y")],
        {"x": [4, 5, 3]},
        {"starts": starts, "ends": ends, "steps": steps, "axes": ints(*range(len(limits)))},
    )
    model = imported(sketch, tmp_path_factory.mktemp("slice"))
    x = RANDOM.standard_normal((4, 5, 3)).astype(F32)
    wanted = x[tuple(slice(*limit) for limit in limits)]
    assert model.outputs[0].shape == wanted.shape
    if wanted.size:
        np.testing.assert_array_equal(computed(model, {"x": x})[0], wanted)


def refusal(sketch: Sketch, folder: Path) -> UnsupportedModelError:
    with pytest.raises(UnsupportedModelError) as caught:
        imported(sketch, folder)
    return caught.value


def test_an_operator_without_a_way_is_named_with_its_node_and_a_count_of_others(
    tmp_path: Path,
) -> None:
    odd = [
        helper.make_node(kind, ["x"], [f"o{i}"], name=f"n{i}", domain="odd")
        for i, kind in enumerate(["Swirl", "Swirl", "Twirl", "Whirl"])
    ]
    error = refusal(
        Sketch([*odd, node("Sum", "o0 o1 o2 o3", "y")], {"x": [2]}, functions=()), tmp_path
    )
    assert "odd.Swirl (node 'n0', used 2 times)" in error.message
    assert "2 other operators" in error.message
    assert len(error.details) == 2


def test_an_input_that_decides_a_shape_is_refused_with_the_option_that_binds_it(
    tmp_path: Path,
) -> None:
    sketch = Sketch([node("Reshape", "x shape", "y")], {"x": [6], "shape": (INT64, [2])})
    error = refusal(sketch, tmp_path)
    assert "Reshape" in error.message
    assert error.hint is not None
    assert "--constant shape=VALUE" in error.hint
    bound = Sketch(sketch.nodes, sketch.inputs, constants={"shape": ints(2, 3)})
    agrees(bound, tmp_path)


def test_a_scan_lists_what_branches_hold_and_what_cannot_be_imported(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Swirl", ["x"], ["s"], name="deep", domain="odd")],
        "then",
        [],
        [helper.make_tensor_value_info("s", FLOAT, None)],
    )
    sketch = Sketch(
        [
            node("If", "flag", "a", then_branch=inner, else_branch=branch("Neg")),
            node("Add", "a w", "y"),
        ],
        {"x": ["n", 3], "flag": (BOOL, [])},
        weights(w=(3,)),
    )
    path = tmp_path / "model.onnx"
    onnx.save(proto(sketch), path)
    scan = scan_model(open_model(path))
    assert {item.name: item.count for item in scan.operators} == {
        "If": 1,
        "Add": 1,
        "Neg": 1,
        "odd.Swirl": 1,
    }
    assert [(item.name, item.node) for item in scan.unsupported] == [("odd.Swirl", "deep")]
    assert scan.inputs[0].shape == ("n", 3)
    assert (scan.parameters, scan.parameter_bytes) == (3, 12)
