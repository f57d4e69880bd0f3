"""What TensorRT is given: the ONNX of regions, run by onnxruntime instead of TensorRT.

These tests say that a region's ONNX means what the model means. They say nothing about TensorRT.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import c_networks
from support.offloaded import selection_for
from support.offloading import named_network
from support.onnx_models import judged_by_onnxruntime
from support.tensorrt_regions import OnnxRegion, offloaded, quantised_network

from benchmarks.model_zoo import MODELS, fetch
from benchmarks.networks import build
from edgekit.api.functions import make_request
from edgekit.backends.offloading import partition_model
from edgekit.backends.tensorrt.graph import onnx_of
from edgekit.models.model import import_model, open_model

CLOSE = 2e-5
"""The tolerance, of the largest expected value: TVM's folding adds in another order."""
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "MobileNetV2": lambda: build("MobileNetV2"),
    "YOLOv8n": lambda: build("YOLOv8n"),
    "ResNet-18": lambda: build("ResNet-18"),
    "SqueezeNet": lambda: build("SqueezeNet"),
    "DS-CNN": c_networks.ds_cnn,
    "autoencoder": c_networks.autoencoder,
    "dilated": c_networks.dilated,
    "grouped": c_networks.grouped,
    "pools": c_networks.pools,
    "two outputs": c_networks.two_outputs,
    "several inputs": c_networks.several_inputs,
    "normalised": c_networks.normalised,
    "resized": c_networks.resized,
    "rearranged": c_networks.rearranged,
}


def check(whole: onnx.ModelProto, path: Path) -> int:
    """How many regions there are; nothing is left to TVM."""
    onnx.save(whole, path)
    model = import_model(open_model(path))
    random = np.random.default_rng(0)
    values = {
        spec.name: random.standard_normal(spec.shape).astype("float32") for spec in model.inputs
    }
    expected = judged_by_onnxruntime(whole, values)
    result = offloaded(model, list(values.values()))
    assert not result.left
    for actual, wanted in zip(result.outputs, expected, strict=True):
        assert actual.shape == wanted.shape
        allowed = CLOSE * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed)
    return len(result.regions)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_one_region_with_the_numbers_of_the_model(name: str, tmp_path: Path) -> None:
    assert check(NETWORKS[name](), tmp_path / "network.onnx") == 1


@pytest.mark.models
@pytest.mark.parametrize("name", ["RetinaFace", "PP-OCRv4 detection", "MobileNetV2"])
def test_a_trained_network_is_one_region_with_its_numbers(name: str) -> None:
    zoo = next(found for found in MODELS if found.name.startswith(name))
    request = make_request(fetch(zoo), "jetson-orin", None, zoo.shapes, {})
    model = import_model(request.source)
    random = np.random.default_rng(0)
    values = [random.standard_normal(spec.shape).astype("float32") for spec in model.inputs]
    feeds = {spec.name: value for spec, value in zip(model.inputs, values, strict=True)}
    expected = judged_by_onnxruntime(onnx.load(request.source.path), feeds)

    result = offloaded(model, values)

    assert (len(result.regions), result.left) == (1, ())
    for actual, wanted in zip(result.outputs, expected, strict=True):
        allowed = CLOSE * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed)


def test_a_quantised_network_is_one_region_where_int8_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "quantised.onnx"
    onnx.save(quantised_network(), path)
    model = import_model(open_model(path))
    values = [np.random.default_rng(4).standard_normal((1, 3, 8, 8)).astype("float32")]
    (expected,) = judged_by_onnxruntime(quantised_network(), {"x": values[0]})

    result = offloaded(model, values, precision="int8")

    assert not result.left
    (runner,) = result.runners
    assert isinstance(runner, OnnxRegion)
    operators = [node.op_type for node in runner.model.graph.node]
    assert operators.count("QuantizeLinear") == 3 + 2  # activations and weights
    np.testing.assert_allclose(result.outputs[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("precision", "activation", "zero", "why"),
    [
        ("fp16", "int8", 0, "part of quantised arithmetic"),
        ("int8", "int8", 3, "its zero point is not zero"),
        ("int8", "uint8", 0, "it stores uint8"),
    ],
)
def test_other_quantisations_stay_in_tvm_with_the_reason(
    precision: str, activation: str, zero: int, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "quantised.onnx"
    onnx.save(quantised_network(activation, zero), path)
    selection = selection_for("tensorrt", precision=precision)

    decisions = partition_model(import_model(open_model(path)), selection).decisions

    assert any(why in decision.reason for decision in decisions if decision.backend is None)


def test_the_onnx_is_what_the_oldest_parser_reads(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    named_network(path)
    (region,) = partition_model(import_model(open_model(path)), selection_for("tensorrt")).regions

    model = onnx_of(region)

    assert (model.ir_version, model.opset_import[0].version) == (8, 17)
    assert [value.name for value in model.graph.input] == ["input0"]
    assert [value.name for value in model.graph.output] == ["output0"]
    assert len(region.symbol) < 40
    assert any("/stem/Conv" in node.name for node in model.graph.node)
    assert all(len(node.name) < 100 and node.name.isascii() for node in model.graph.node)
