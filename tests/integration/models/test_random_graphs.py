"""Random graphs of odd shapes go through every phase, and give onnxruntime's numbers."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs.ways import Graph, in_c, judged
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from support.deployed import run_deployed
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.random_graphs import random_graph

from edgekit.base.errors import UnsupportedModelError
from edgekit.models.model import import_model, open_model


def graph_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> Graph:
    """The model imported; UnsupportedModelError where it is refused."""
    names = [item.name for item in model.graph.output]
    expected = dict(zip(names, judged_by_onnxruntime(model, inputs), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        source = open_model(path)
        imported = import_model(source)
    return Graph(source, imported, inputs, expected, {})


def run_here(graph: Graph) -> dict[str, np.ndarray]:
    from edgekit.backends.offloading import compile_model
    from edgekit.profiles.board import load_board

    compiled = compile_model(graph.model, load_board("local").target)
    results = run_deployed(compiled, [graph.inputs[spec.name] for spec in graph.model.inputs])
    names = [spec.name for spec in graph.model.outputs]
    return dict(zip(names, results, strict=True))


def typed(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[str, tuple[int, ...]]],
    outputs: dict[str, tuple[str, tuple[int, ...]]],
    constants: dict[str, np.ndarray],
) -> onnx.ModelProto:
    def info(name: str, dtype: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes,
        "found",
        [info(name, *rest) for name, rest in inputs.items()],
        [info(name, *rest) for name, rest in outputs.items()],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def matrix_and_vector() -> onnx.ModelProto:
    """A product that is large enough to pack, of a vector that has no rows."""
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    return onnx_model([node], {"a": [16, 64], "b": [64]}, ["y"], {})


def one_sum() -> onnx.ModelProto:
    """A sum over everything has no axis that is left."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["y"], keepdims=0),
    ]
    return onnx_model(nodes, {"x": [4, 9]}, ["y"], {})


def stored_beside_constant() -> onnx.ModelProto:
    """Integers that a model joins with constants: a step reads buffers only."""
    nodes = [
        helper.make_node("Concat", ["x", "five", "x"], ["y"], axis=1),
        helper.make_node("Concat", ["y", "y"], ["z"], axis=0),
    ]
    five = np.arange(10, dtype="int8").reshape(2, 5)
    ends = {"y": ("int8", (2, 11)), "z": ("int8", (4, 11))}
    return typed(nodes, {"x": ("int8", (2, 3))}, ends, {"five": five})


def never_read() -> onnx.ModelProto:
    """TVM finds that nothing is less than itself, and that one class is always the first."""
    nodes = [
        helper.make_node("Less", ["x", "x"], ["never"]),
        helper.make_node("ArgMax", ["x"], ["first"], axis=1, keepdims=1),
        helper.make_node("Sub", ["first", "first"], ["zero"]),
    ]
    ends = {"never": ("bool", (3, 1)), "zero": ("int64", (3, 1))}
    return typed(nodes, {"x": ("float32", (3, 1))}, ends, {})


def one_mean() -> onnx.ModelProto:
    """A mean over every axis: its sum gets a value in the first round of a loop."""
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=0)
    extra = {name: np.arange(15, dtype="float32").reshape(3, 5) for name in ("s", "b")}
    return onnx_model([node], {"x": [3, 5]}, ["y"], extra)


def shifted_indices() -> onnx.ModelProto:
    """A convolution in groups, whose indices TVM divides by shifting."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, pads=[1, 1])
    weights = np.random.default_rng(1).standard_normal((8, 2, 2)).astype("float32")
    return onnx_model([node], {"x": [8, 4, 1]}, ["y"], {"w": weights})


def tiles_across_axes() -> onnx.ModelProto:
    """A product whose 36 lines are two tiles of 18, which begin in the middle of an axis of 4."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = np.array([[0.5], [-0.25]], "float32")
    return onnx_model([node], {"x": [3, 3, 4, 2]}, ["y"], {"w": weights})


def pooled_constant() -> onnx.ModelProto:
    """onnx's reference implementation, which folds constants, gives the pool a sixth axis."""
    nodes = [
        helper.make_node("GlobalMaxPool", ["c"], ["pooled"]),
        helper.make_node("Add", ["pooled", "x"], ["y"]),
    ]
    constant = np.arange(6, dtype="float32").reshape(1, 2, 1, 1, 3)
    return onnx_model(nodes, {"x": [1]}, ["y"], {"c": constant})


def ends_that_nothing_computes() -> onnx.ModelProto:
    """Outputs that are an input, a constant and the same tensor twice, and an input without use."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["same"], ["again"]),
        helper.make_node("Neg", ["x"], ["y"]),
    ]
    ends = dict.fromkeys(("same", "again", "y", "x", "c"), ("float32", (2, 1)))
    inputs = {"x": ("float32", (2, 1)), "unused": ("int64", (3,))}
    return typed(nodes, inputs, ends, {"c": np.ones((2, 1), "float32")})


FOUND = [
    matrix_and_vector,
    one_sum,
    stored_beside_constant,
    never_read,
    one_mean,
    shifted_indices,
    pooled_constant,
    tiles_across_axes,
    ends_that_nothing_computes,
]


@pytest.mark.parametrize("way", ["here", "c"])
@pytest.mark.parametrize("make", FOUND, ids=lambda make: make.__name__)
def test_what_random_graphs_found(make: Callable[[], onnx.ModelProto], way: str) -> None:
    model, dice = make(), np.random.default_rng(4)
    inputs = {
        item.name: dice.uniform(
            -9, 9, [d.dim_value for d in item.type.tensor_type.shape.dim]
        ).astype(helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type))
        for item in model.graph.input
    }
    graph = graph_of(model, inputs)

    found = in_c(graph) if way == "c" else judged(graph, run_here(graph))

    assert found.word == "right", found.reason


@settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking is slow
@given(st.randoms(use_true_random=False))
def test_a_random_graph_gives_onnxruntimes_numbers(dice: random.Random) -> None:
    drawn = random_graph(dice)
    assume(drawn.nodes)
    try:
        graph = graph_of(drawn.model(), drawn.fed())
        found = judged(graph, run_here(graph))
        assert found.word == "right", found.reason
        found = in_c(graph)
    except UnsupportedModelError:
        return  # with a reason: float16 in C, an operator that has no loop nest
    assert found.word == "right", found.reason


def test_a_window_that_is_larger_than_its_input_is_refused(tmp_path: Path) -> None:
    """onnxruntime gives one result for it, the standard none."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 1])
    model = typed([node], {"x": ("float32", (1, 3, 2, 3))}, {"y": ("float32", (1, 3, 1, 1))}, {})
    onnx.save(model, tmp_path / "model.onnx")

    with pytest.raises(UnsupportedModelError) as caught:
        import_model(open_model(tmp_path / "model.onnx"))

    assert "window of 3 is larger" in " ".join((caught.value.message, *caught.value.details))
