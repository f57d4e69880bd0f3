"""float32 kernels for ARM: what LLVM makes of them, and their numbers under QEMU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.compiling import assembly_of, one_node_model, random_array
from support.emulated_arm import build_and_run
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import onnx_model
from support.relax_modules import relax_of

from edgekit.models.model import Model, ModelSource
from edgekit.profiles.board import load_board


def compiled_for_a_pi(model: onnx.ModelProto) -> str:
    source = ModelSource(Path("test.onnx"), "onnx", "0" * 64)
    return assembly_of(Model(source, relax_of(model), (), (), ()), load_board("rpi4").target)


@pytest.fixture(scope="module")
def product() -> str:
    """Over 64 channels: three other kernels turn the image round, and back."""
    return compiled_for_a_pi(
        one_node_model("Conv", (1, 64, 56, 56), [random_array((64, 64, 1, 1))])
    )


def test_each_step_of_a_sum_takes_a_lane_of_what_was_loaded_once(product: str) -> None:
    steps = [line for line in product.splitlines() if "\tfmla\t" in line]

    for lane in range(4):
        assert sum(line.endswith(f".s[{lane}]") for line in steps) == len(steps) / 4
    assert "ld1r" not in product


def test_sums_are_in_registers_and_nowhere_else(product: str) -> None:
    kernel = product[product.index("fmla") : product.index(".Lfunc_end", product.index("fmla"))]
    loop = kernel[: kernel.index("b.ne")]

    assert "[sp" not in loop
    assert "\tst" not in loop


def test_a_maximum_is_one_instruction() -> None:
    source = compiled_for_a_pi(one_node_model("Relu", (1, 64, 56, 56)))

    assert "\tfmax\t" in source
    assert "fcm" not in source


def network() -> onnx.ModelProto:
    """Whatever a network has: few channels, each one for itself, groups, odd numbers, a turned
    convolution, a small image, columns."""
    layers = [
        ("Conv", (16, 3, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
        ("Conv", (16, 1, 3, 3), {"pads": [1] * 4, "group": 16}),
        ("Conv", (24, 16, 1, 1), {}),
        ("Conv", (48, 12, 3, 3), {"pads": [2] * 4, "dilations": [2, 2], "group": 2}),
        ("Conv", (13, 48, 1, 1), {}),
        ("ConvTranspose", (13, 20, 2, 2), {"strides": [2, 2]}),
        ("Conv", (16, 20, 5, 3), {"pads": [2, 1, 2, 1]}),
        ("Conv", (32, 16, 3, 3), {"pads": [1] * 4}),
        ("Conv", (40, 32, 3, 3), {"pads": [0] * 4, "strides": [3, 3]}),
        ("Conv", (64, 40, 1, 7), {}),
    ]
    nodes, weights, last = [], {}, "x"
    for number, (kind, shape, attributes) in enumerate(layers):
        weight = random_array(shape, number)
        inputs = weight.size / shape[1 if kind == "ConvTranspose" else 0]
        weights[f"w{number}"] = weight / np.float32(np.sqrt(inputs))
        nodes.append(helper.make_node(kind, [last, f"w{number}"], [f"c{number}"], **attributes))
        nodes.append(helper.make_node("LeakyRelu", [f"c{number}"], [f"r{number}"], alpha=0.5))
        last = f"r{number}"
    weights["flat"] = random_array((64, 10), 20) / np.float32(8)
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["line"]),
        helper.make_node("MatMul", ["line", "flat"], ["y"]),
    ]
    return onnx_model(nodes, {"x": (2, 3, 37, 41)}, ["y"], weights)


@needs(*ARM_PROGRAMS)
def test_a_network_of_all_kinds_gives_what_onnxruntime_gives(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(network().SerializeToString())

    bundle, found = build_and_run(model, "rpi4", tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5 * np.abs(expected).max())
    rules = {kernel.rule for kernel in bundle.manifest.kernels}
    assert {"product", "winograd", "depthwise"} <= rules


@needs(*ARM_PROGRAMS)
def test_products_of_computed_matrices_give_what_onnxruntime_gives(tmp_path: Path) -> None:
    """As they come, and turned round."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "turned"], ["rows"]),
        helper.make_node("Softmax", ["rows"], ["shares"]),
        helper.make_node("MatMul", ["shares", "x"], ["mixed"]),
        helper.make_node("MatMul", ["turned", "mixed"], ["y"]),
    ]
    model = tmp_path / "model.onnx"
    model.write_bytes(onnx_model(nodes, {"x": (3, 34, 20)}, ["y"], {}).SerializeToString())

    bundle, found = build_and_run(model, "rpi4", tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5 * np.abs(expected).max())
    assert "pair" in {kernel.rule for kernel in bundle.manifest.kernels}


@needs(*ARM_PROGRAMS)
def test_nan_gets_through_a_maximum(tmp_path: Path) -> None:
    holes = np.where(np.arange(40) % 7 == 3, np.nan, 0).astype("float32")
    nodes = [
        helper.make_node("Add", ["x", "holes"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Clip", ["b", "", "most"], ["y"]),
    ]
    weights = {"holes": holes, "most": np.array(0.5, "float32")}
    model = tmp_path / "model.onnx"
    model.write_bytes(onnx_model(nodes, {"x": (5, 40)}, ["y"], weights).SerializeToString())

    bundle, found = build_and_run(model, "rpi4", tmp_path)

    (expected,) = bundle.reference_outputs().values()
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(found, expected)
