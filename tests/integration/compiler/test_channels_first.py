"""Networks with their channels last are turned for backends, and compute what LiteRT computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ncnn_lab import lab, ncnn_selection, offloaded
from support.needs import needs
from support.offloading import ToyBackend
from support.relax_modules import operators_in, run_module
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from edgekit.backends.offloading import compile_model, partition_model
from edgekit.backends.partition import Selection
from edgekit.backends.quantised import REASON
from edgekit.base.errors import UsageError
from edgekit.models.model import ModelSource, import_model
from edgekit.models.oracle import oracle_for
from edgekit.profiles.board import load_board

IMAGE = T("x", (1, 9, 8, 4))
SAME, VALID = 0, 1
RELU6 = 3
NOBODY = ToyBackend("nobody")


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def options(table: str, **fields: Any) -> dict[str, Any]:
    return {"table": table, **fields}


def window(table: str, padding: int, stride: int = 1, **more: Any) -> dict[str, Any]:
    return options(table, padding=padding, strideH=stride, strideW=stride, **more)


@dataclass
class Network:
    """Operators one after another, on an image."""

    tensors: list[T] = field(default_factory=lambda: [IMAGE])
    operators: list[Op] = field(default_factory=list)

    def add(
        self, name: str, reads: Sequence[str | np.ndarray], results: int = 1, **settings: Any
    ) -> str:
        """What reads an array reads a constant; returns the name of the (first) result."""
        place = len(self.operators)
        inputs = []
        for number, source in enumerate(reads):
            if isinstance(source, str):
                inputs.append(source)
            else:
                inputs.append(f"c{place}.{number}")
                self.tensors.append(constant(inputs[-1], source))
        made = [f"t{place}_{number}" for number in range(results)]
        self.tensors += [T(result) for result in made]
        self.operators.append(Op(name, tuple(inputs), tuple(made), settings))
        return made[0]

    def convolution(self, source: str, inputs: int, outputs: int, padding: int = SAME) -> str:
        reads = (source, values(outputs, 3, 3, inputs), values(outputs))
        return self.add("CONV_2D", reads, **window("Conv2DOptions", padding))

    def source(self, folder: Path, *outputs: str) -> ModelSource:
        return write_model(folder, tflite_bytes(self.tensors, self.operators, ["x"], outputs))


def depthwise(net: Network, x: str) -> str:
    settings = window("DepthwiseConv2DOptions", SAME, 2, depthMultiplier=1)
    settings["fusedActivationFunction"] = RELU6
    return net.add("DEPTHWISE_CONV_2D", (x, values(1, 3, 3, 6), values(6)), **settings)


def doubled_depthwise(net: Network, x: str) -> str:
    settings = window("DepthwiseConv2DOptions", VALID, depthMultiplier=2)
    return net.add("DEPTHWISE_CONV_2D", (x, values(1, 3, 3, 12), values(12)), **settings)


def pooled(operator: str, padding: int) -> Any:
    def build(net: Network, x: str) -> str:
        settings = window("Pool2DOptions", padding, 2, filterWidth=3, filterHeight=2)
        return net.add(operator, (x,), **settings)

    return build


def resized(net: Network, x: str) -> str:
    settings = options("ResizeBilinearOptions", halfPixelCenters=True)
    return net.add("RESIZE_BILINEAR", (x, np.array([12, 5], "int32")), **settings)


def prelu(net: Network, x: str) -> str:
    return net.add("PRELU", (x, values(1, 1, 6)))


def prelu_by_pixel(net: Network, x: str) -> str:
    return net.add("PRELU", (x, values(9, 8, 6)))


def padded(net: Network, x: str) -> str:
    return net.add("PAD", (x, np.array([[0, 0], [1, 2], [0, 3], [4, 0]], "int32")))


def joined(net: Network, x: str) -> str:
    return net.add("CONCATENATION", (x, "x"), **options("ConcatenationOptions", axis=-1))


def stacked(net: Network, x: str) -> str:
    return net.add("CONCATENATION", (x, x), **options("ConcatenationOptions", axis=1))


def split(net: Network, x: str) -> str:
    pieces = net.add("SPLIT", (np.int32(3), x), 3, **options("SplitOptions", numSplits=3))
    last = pieces.replace("_0", "_2")
    return net.add("MUL", (pieces, last), **options("MulOptions"))


def sliced(net: Network, x: str) -> str:
    return net.add("SLICE", (x, np.array([0, 1, 2, 3], "int32"), np.array([1, 4, 5, 2], "int32")))


def averaged(keep: bool) -> Any:
    def build(net: Network, x: str) -> str:
        settings = options("ReducerOptions", keepDims=keep)
        return net.add("MEAN", (x, np.array([1, 2], "int32")), **settings)

    return build


def over_channels(net: Network, x: str) -> str:
    settings = options("ReducerOptions", keepDims=True)
    return net.add("REDUCE_MAX", (x, np.array([3], "int32")), **settings)


def broadcast(net: Network, x: str) -> str:
    return net.add("SUB", (values(8, 1), x), **options("SubOptions"))


def softmax(net: Network, x: str) -> str:
    return net.add("SOFTMAX", (x,), **options("SoftmaxOptions", beta=1.0))


def transposed_convolution(net: Network, x: str) -> str:
    shape = np.array([1, 18, 16, 5], "int32")
    settings = window("TransposeConvOptions", SAME, 2)
    return net.add("TRANSPOSE_CONV", (shape, values(5, 3, 3, 6), x), **settings)


def flattened(net: Network, x: str) -> str:
    flat = net.add("RESHAPE", (x, np.array([1, 432], "int32")))
    return net.add("FULLY_CONNECTED", (flat, values(3, 432)), **options("FullyConnectedOptions"))


BUILDERS: Mapping[str, Any] = {
    "depthwise": depthwise,
    "depthwise times 2": doubled_depthwise,
    "largest": pooled("MAX_POOL_2D", SAME),
    "average": pooled("AVERAGE_POOL_2D", VALID),
    "resized": resized,
    "prelu": prelu,
    "prelu by pixel": prelu_by_pixel,
    "padded": padded,
    "joined": joined,
    "stacked": stacked,
    "split": split,
    "sliced": sliced,
    "mean": averaged(False),
    "mean kept": averaged(True),
    "over channels": over_channels,
    "broadcast": broadcast,
    "softmax": softmax,
    "transposed convolution": transposed_convolution,
    "flattened": flattened,
}
STAYS_LAST = {"prelu by pixel"}
"""What goes through the old order, and back."""
EDGES = {"mean": 1}
"""Permutations that are needed: one for the input, one for the result, unless told here."""


def network(name: str, folder: Path) -> ModelSource:
    """The operator between two convolutions' worth of neighbours."""
    net = Network()
    return net.source(folder, BUILDERS[name](net, net.convolution("x", 4, 6)))


def judged(source: ModelSource, found: Sequence[np.ndarray], x: np.ndarray) -> None:
    for actual, wanted in zip(found, oracle_for(source).run({"x": x}).values(), strict=True):
        assert actual.shape == wanted.shape
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def turned(source: ModelSource) -> Any:
    return partition_model(import_model(source), Selection(((NOBODY, {}),))).module


@pytest.mark.parametrize("name", BUILDERS)
def test_a_turned_network_computes_what_litert_computes(name: str, tmp_path: Path) -> None:
    source = network(name, tmp_path)
    module, x = turned(source), values(*IMAGE.shape)
    assert "NHWC" not in module.script()
    permuted = operators_in(module).count("permute_dims")
    assert name in STAYS_LAST or permuted <= EDGES.get(name, 2)
    judged(source, run_module(module, {module["main"].params[0].name: x}), x)


@needs("ncnn")
@pytest.mark.parametrize("name", BUILDERS)
def test_a_turned_network_in_ncnn_computes_what_litert_computes(name: str, tmp_path: Path) -> None:
    lab()
    source, x = network(name, tmp_path), values(*IMAGE.shape)
    result = offloaded(import_model(source), [x])
    assert result.regions
    assert not any("layout" in reason for reason in result.left)
    judged(source, result.outputs, x)


def block(folder: Path) -> ModelSource:
    """Two results, one of them read inside too; a sum of branches."""
    net = Network()
    first = net.convolution("x", 4, 6)
    branch = depthwise(net, first)
    other = pooled("MAX_POOL_2D", SAME)(net, first)
    total = net.add("ADD", (branch, other), **options("AddOptions", fusedActivationFunction=1))
    return net.source(folder, total, net.convolution(total, 6, 3, VALID))


@needs("ncnn")
def test_a_network_of_branches_is_one_region(tmp_path: Path) -> None:
    lab()
    source, x = block(tmp_path), values(*IMAGE.shape)
    result = offloaded(import_model(source), [x])
    assert len(result.regions) == 1
    assert result.left == ()
    judged(source, result.outputs, x)


def test_operators_keep_the_names_of_their_nodes(tmp_path: Path) -> None:
    model = import_model(block(tmp_path))
    found = partition_model(model, Selection(((NOBODY, {}),)))
    nodes = {d.node for d in found.decisions if d.operator != "permute_dims"}
    assert nodes == {"t0_0", "t1_0", "t2_0", "t3_0", "t4_0"}
    assert {d.node for d in found.decisions if d.operator == "nn.max_pool2d"} == {"t2_0"}


def test_a_model_of_which_nothing_is_offloaded_is_compiled_as_it_was(tmp_path: Path) -> None:
    model, target = import_model(block(tmp_path)), load_board("local").target
    asked = compile_model(model, target, offload=Selection(((NOBODY, {}),)))
    assert asked.kernels == compile_model(model, target).kernels


def quantised(folder: Path) -> ModelSource:
    random = np.random.default_rng(7)
    step = {"scale": 0.05, "zero": 3}
    weights = random.integers(-127, 128, (5, 3, 3, 4)).astype("int8")
    bias = random.integers(-3000, 3000, 5).astype("int32")
    pool = window("Pool2DOptions", VALID, 2, filterWidth=2, filterHeight=2)
    tensors = [
        T("x", IMAGE.shape, "int8", scale=0.04),
        constant("w", weights, scale=0.01),
        constant("b", bias, scale=0.0004),
        *(T(name, (), "int8", **step) for name in ("convolved", "positive", "pooled")),
        T("y"),
        T("probabilities"),
    ]
    operators = [
        Op("CONV_2D", ("x", "w", "b"), ("convolved",), window("Conv2DOptions", SAME)),
        Op("RELU", ("convolved",), ("positive",)),
        Op("AVERAGE_POOL_2D", ("positive",), ("pooled",), pool),
        Op("DEQUANTIZE", ("pooled",), ("y",), options("DequantizeOptions")),
        Op("SOFTMAX", ("y",), ("probabilities",), options("SoftmaxOptions", beta=1.0)),
    ]
    return write_model(folder, tflite_bytes(tensors, operators, ["x"], ["y", "probabilities"]))


@needs("ncnn")
def test_floats_that_stand_for_integers_are_refused_with_the_reason(tmp_path: Path) -> None:
    lab()
    source = quantised(tmp_path)
    x = np.random.default_rng(1).integers(-128, 128, IMAGE.shape).astype("int8")
    result = offloaded(import_model(source), [x])
    taken = [operator for region in result.regions for operator in region.operators]
    assert taken == ["nn.softmax"], "behind the last quantisation a model computes in floats"
    for operator in ("nn.conv2d", "nn.relu", "nn.avg_pool2d"):
        (reason,) = [line for line in result.left if line.startswith(operator)]
        assert REASON in reason
    stored, _ = oracle_for(source).run({"x": x}).values()
    np.testing.assert_array_equal(result.outputs[0], stored)


def test_who_forces_a_float_of_quantised_arithmetic_is_told_why_not(tmp_path: Path) -> None:
    model = import_model(quantised(tmp_path))
    forced = Selection(ncnn_selection().backends, force=("relu",))
    with pytest.raises(UsageError, match="part of quantised arithmetic"):
        partition_model(model, forced)
