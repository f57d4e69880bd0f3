"""Operators for TensorRT beside those that every backend has, and regions in half precision: their
ONNX in onnxruntime, and NVIDIA's parser and builder where TensorRT for RTX is installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import c_networks
from support.needs import import_needed, needs, require
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.relax_modules import run_module
from support.tensorrt_regions import OnnxRegion, engine_of, offloaded

from benchmarks.networks import build
from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import Model, ModelSource, import_model, open_model

torch = import_needed("torch")

X = {"x": [2, 3, 6, 8]}
CLOSE = 2e-5
HALF = 4e-3
"""The tolerance relative to the largest expected value: eleven bits, through many layers."""


@pytest.fixture(scope="module")
def nvidia() -> Any:
    require("tensorrt")
    return importlib.import_module("tensorrt_rtx")


class Net:
    """Nodes in a row, by their operators."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.types: dict[str, int] = {}

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"y{len(self.nodes)}.{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[-1]

    def constant(self, value: Any, kind: str = "float32") -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(value, kind)
        return name

    def model(self, *results: str, **inputs: list[int]) -> onnx.ModelProto:
        return onnx_model(self.nodes, inputs or X, list(results), self.weights, self.types)


def compared(kind: str) -> onnx.ModelProto:
    net = Net()
    truth = net.add(kind, net.add("Round", "x"), net.constant(0.0))
    return net.model(net.add("Where", truth, "x", net.constant(-2.0)))


def reasoned() -> onnx.ModelProto:
    net = Net()
    low, high = (net.add(kind, "x", net.constant(0.5)) for kind in ("Less", "Greater"))
    either = net.add("Or", net.add("Not", low), net.add("And", low, high))
    mask = net.add("Cast", net.add("Xor", either, high), to=TensorProto.FLOAT)
    return net.model(net.add("Mul", "x", mask))


def chosen(kind: str, **attributes: int) -> onnx.ModelProto:
    net = Net()
    numbers = net.add(kind, net.add("Sigmoid", "x"), **attributes)
    net.types[numbers] = TensorProto.INT64
    return net.model(numbers)


def top(largest: int) -> onnx.ModelProto:
    net = Net()
    count = net.constant([3], "int64")
    numbers = net.add("TopK", "x", count, outputs=2, axis=3, largest=largest)
    net.types[numbers] = TensorProto.INT64
    return net.model(numbers.replace(".1", ".0"), numbers)


def summed(**attributes: int) -> onnx.ModelProto:
    net = Net()
    axis = net.constant(2, "int64")
    return net.model(net.add("Relu", net.add("CumSum", "x", axis, **attributes)))


def pooled(kind: str, **attributes: Any) -> onnx.ModelProto:
    net = Net()
    made = net.add(kind, net.add("Relu", "x"), kernel_shape=[3, 2, 3], **attributes)
    return net.model(made, x=[1, 2, 7, 6, 9])


def written_attention() -> onnx.ModelProto:
    """As PyTorch's exporter writes it: products, a scale, a mask, a softmax."""
    net = Net()
    random = np.random.default_rng(0)

    def heads(name: str) -> str:
        weight = net.constant(random.standard_normal((32, 32)) * 0.3)
        apart = net.add(
            "Reshape", net.add("MatMul", name, weight), net.constant([1, 10, 4, 8], "int64")
        )
        return net.add("Transpose", apart, perm=[0, 2, 1, 3])

    query, key, value = (heads("x") for _ in range(3))
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.add("Div", scores, net.constant(np.sqrt(8)))
    later = np.where(np.tri(10, dtype=bool), 0, np.finfo(np.float32).min)
    weights = net.add("Softmax", net.add("Add", scores, net.constant(later)), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", weights, value), perm=[0, 2, 1, 3])
    return net.model(net.add("Reshape", mixed, net.constant([1, 10, 32], "int64")), x=[1, 10, 32])


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    **{
        kind: lambda kind=kind: compared(kind)
        for kind in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
    },
    "logic": reasoned,
    "the largest": lambda: chosen("ArgMax", axis=1),
    "the smallest": lambda: chosen("ArgMin", axis=-1, keepdims=0),
    "the three largest": lambda: top(1),
    "the three smallest": lambda: top(0),
    "sums so far": lambda: summed(),
    "sums before": lambda: summed(exclusive=1),
    "maxima in space": lambda: pooled("MaxPool", strides=[2, 1, 2], pads=[1, 0, 1, 1, 1, 1]),
    "means in space": lambda: pooled("AveragePool", strides=[1, 2, 3]),
    "attention": written_attention,
}


def run(
    model: onnx.ModelProto, path: Path, within: float | None, **options: object
) -> list[OnnxRegion]:
    """Everything in one region, with the numbers of the whole model; None where a rounding may
    choose another element."""
    onnx.save(model, path)
    imported = import_model(open_model(path))
    random = np.random.default_rng(0)
    feeds = {
        spec.name: random.standard_normal(spec.shape).astype("float32") for spec in imported.inputs
    }
    wanted = judged_by_onnxruntime(model, feeds)
    result = offloaded(imported, list(feeds.values()), **options)
    assert not result.left
    for actual, expected in zip(result.outputs, wanted, strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        if within is None:
            continue
        allowed = within * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed)
    assert len(result.regions) == 1
    return [runner for runner in result.runners if isinstance(runner, OnnxRegion)]


@pytest.mark.parametrize("name", CASES)
def test_the_onnx_computes_what_the_operator_computes(name: str, tmp_path: Path) -> None:
    run(CASES[name](), tmp_path / "model.onnx", CLOSE)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "MobileNetV2": lambda: build("MobileNetV2"),
    "normalised": c_networks.normalised,
    "attention": written_attention,
    "resized": c_networks.resized,
    "several inputs": c_networks.several_inputs,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_half_precision_is_near_the_model(name: str, tmp_path: Path) -> None:
    (runner,) = run(NETWORKS[name](), tmp_path / "model.onnx", HALF, precision="fp16")

    graph = runner.model.graph
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {
        TensorProto.FLOAT
    }
    halves = [one for one in graph.initializer if one.data_type == TensorProto.FLOAT16]
    assert halves or name == "resized"


def test_what_half_precision_can_not_hold_stays_in_float(tmp_path: Path) -> None:
    """A norm of large numbers, whose squares are larger than 65504."""
    net = Net()
    scaled = net.add("Mul", net.add("Relu", "x"), net.constant(500.0))
    centred = net.add("Sub", scaled, net.add("ReduceMean", scaled, axes=[3]))
    spread = net.add("ReduceMean", net.add("Mul", centred, centred), axes=[3])
    made = net.add("Div", centred, net.add("Sqrt", net.add("Add", spread, net.constant(1e-3))))
    weight = net.constant(np.full((8, 8), 1e6))

    run(net.model(net.add("MatMul", made, weight)), tmp_path / "m.onnx", HALF, precision="fp16")


@needs("tensorrt")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_parser_and_the_builder_take_it(
    name: str, precision: str, nvidia: Any, tmp_path: Path
) -> None:
    within = CLOSE if precision == "fp32" else None
    for runner in run(CASES[name](), tmp_path / "model.onnx", within, precision=precision):
        engine_of(nvidia, runner.model)


@needs("tensorrt")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_half_precision_becomes_an_engine(
    name: str, nvidia: Any, tmp_path: Path
) -> None:
    for runner in run(NETWORKS[name](), tmp_path / "model.onnx", HALF, precision="fp16"):
        engine_of(nvidia, runner.model)


class Attention(torch.nn.Module):
    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.bias = torch.linspace(-1, 1, 36).reshape(1, 1, 6, 6) if masked else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = x.chunk(3, dim=-1)
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.bias
        )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_attention_computes_what_pytorch_computes(
    masked: bool, precision: str, tmp_path: Path
) -> None:
    module = Attention(masked=masked).eval()
    given = torch.randn(1, 2, 6, 24, generator=torch.Generator().manual_seed(0))
    torch.export.save(torch.export.export(module, (given,)), tmp_path / "attention.pt2")
    model = import_model(open_model(tmp_path / "attention.pt2"))

    result = offloaded(model, [given.numpy()], precision=precision)

    assert not result.left
    assert len(result.regions) == 1
    close = 1e-5 if precision == "fp32" else 5e-3
    np.testing.assert_allclose(result.outputs[0], module(given).numpy(), rtol=0, atol=close)


@pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_attention_as_one_operator_is_products_and_a_softmax(
    mask: str | None, precision: str
) -> None:
    """What TVM makes of its operator is the measure: no file that edgekit reads has it."""
    shapes = {"x": (1, 6, 2, 8), "key": (1, 7, 2, 8), "value": (1, 7, 2, 8), "bias": (1, 2, 6, 7)}
    module = attention_module(shapes, mask)
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    feeds = {name: value.astype("float32") for name, value in feeds.items()}
    (wanted,) = run_module(module, feeds)
    inputs = tuple(TensorSpec(name, "float32", shape) for name, shape in shapes.items())
    outputs = (TensorSpec("y", "float32", wanted.shape),)
    source = ModelSource(Path("attention"), "onnx", "0" * 64)
    model = Model(source, module, inputs, outputs, ())

    result = offloaded(model, list(feeds.values()), precision=precision)

    assert not result.left
    close = 1e-5 if precision == "fp32" else 1e-2
    np.testing.assert_allclose(result.outputs[0], wanted, rtol=0, atol=close)


def attention_module(shapes: dict[str, tuple[int, ...]], mask: str | None) -> Any:
    load_tvm()
    from tvm import relax

    values = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", values):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.attention(*values, causal_mask=mask))
            made = builder.emit_output(made)
        builder.emit_func_output(made)
    return builder.finalize()


def test_truths_cross_the_boundary_either_way(tmp_path: Path) -> None:
    """What is no number stays in TVM."""
    net = Net()
    odd = net.add("IsNaN", net.add("Log", "x"))
    made = net.add("Where", odd, net.constant(-1.0), net.add("Relu", "x"))
    truth = net.add("Greater", made, net.constant(0.5))
    net.types[truth] = TensorProto.BOOL
    whole = net.model(made, truth)
    onnx.save(whole, tmp_path / "model.onnx")
    given = np.random.default_rng(0).standard_normal(X["x"]).astype("float32")

    result = offloaded(import_model(open_model(tmp_path / "model.onnx")), [given])

    assert [reason.split(":")[0] for reason in result.left] == ["isnan"]
    kinds = {t.dtype for region in result.regions for t in (*region.inputs, *region.outputs)}
    assert "bool" in kinds
    for actual, wanted in zip(
        result.outputs, judged_by_onnxruntime(whole, {"x": given}), strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)
