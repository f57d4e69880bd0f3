"""Regions for TensorRT without TensorRT: their ONNX in onnxruntime, and the rest of a model in the
worker of a deployment. TensorRT itself needs a GPU and NVIDIA's package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from edgekit.backends.base import Options, Region
from edgekit.backends.tensorrt.graph import onnx_of
from support.onnx_models import judged_by_onnxruntime, onnx_model

if TYPE_CHECKING:
    from edgekit.models.model import Model
    from support.offloaded import Offloaded


class OnnxRegion:
    def __init__(self, region: Region, options: Options) -> None:
        self.region = region
        self.model = onnx_of(region, half=options["precision"] == "fp16")

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The boundary is as the runner has it: truths are bytes, integers 32 bits long."""
        feeds = {
            f"input{place}": value.view(np.uint8) if value.dtype == bool else value
            for place, value in enumerate(inputs)
        }
        made = judged_by_onnxruntime(self.model, feeds)
        return [
            value.astype(tensor.dtype)
            for value, tensor in zip(made, self.region.outputs, strict=True)
        ]


def offloaded(model: Model, inputs: Sequence[np.ndarray], **options: object) -> Offloaded:
    """Run the model with everything in ONNX that TensorRT's rules take, and TVM's kernels for the
    rest."""
    from support.offloaded import run_offloaded, selection_for

    return run_offloaded(model, inputs, selection_for("tensorrt", **options), OnnxRegion)


def parsed(nvidia: Any, model: onnx.ModelProto) -> tuple[Any, Any, list[str]]:
    """TensorRT for RTX's builder, its network, and what its parser has against the model."""
    builder = nvidia.Builder(nvidia.Logger(nvidia.Logger.ERROR))
    network = builder.create_network(0)
    parser = nvidia.OnnxParser(network, nvidia.Logger(nvidia.Logger.ERROR))
    parser.parse(model.SerializeToString())
    problems = [str(parser.get_error(place).desc()) for place in range(parser.num_errors)]
    return builder, network, problems


def engine_of(nvidia: Any, model: onnx.ModelProto) -> None:
    builder, network, problems = parsed(nvidia, model)
    assert not problems
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert plan is not None
    assert plan.nbytes > 0


def quantised_network(activation: str = "int8", zero: int = 0) -> onnx.ModelProto:
    """Convolution, ReLU, pooling and a product, with QuantizeLinear and DequantizeLinear around."""
    random = np.random.default_rng(3)
    weights: dict[str, np.ndarray] = {
        "scale": np.float32(0.03),
        "zero": np.array(zero, activation),
        "stem": random.integers(-127, 128, (8, 3, 3, 3)).astype("int8"),
        "stem.scale": random.uniform(0.001, 0.01, 8).astype("float32"),
        "stem.zero": np.zeros(8, "int8"),
        "bias": random.integers(-500, 500, 8).astype("int32"),
        "bias.scale": random.uniform(0.0001, 0.001, 8).astype("float32"),
        "bias.zero": np.zeros(8, "int32"),
        "head": random.integers(-127, 128, (128, 10)).astype("int8"),
        "head.scale": np.float32(0.005),
        "head.zero": np.int8(0),
    }
    nodes = []

    def add(operator: str, inputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(operator, inputs, [f"y{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def rounded(value: str) -> str:
        stored = add("QuantizeLinear", [value, "scale", "zero"])
        return add("DequantizeLinear", [stored, "scale", "zero"])

    def loaded(name: str) -> str:
        return add("DequantizeLinear", [name, f"{name}.scale", f"{name}.zero"], axis=0)

    x = add("Conv", [rounded("x"), loaded("stem"), loaded("bias")], pads=[1] * 4)
    x = add("MaxPool", [rounded(add("Relu", [x]))], kernel_shape=[2, 2], strides=[2, 2])
    x = add("MatMul", [rounded(add("Flatten", [x])), loaded("head")])
    arrays = {name: np.asarray(value) for name, value in weights.items()}
    return onnx_model(nodes, {"x": [1, 3, 8, 8]}, [x], arrays)
