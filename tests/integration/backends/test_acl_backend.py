"""What the ACL backend promises beyond its operators: whole networks, a model on an emulated board,
clear errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.acl_arm import AclRegion, arm_machine, offloaded
from support.needs import ARM_PROGRAMS, TWIN, needs
from support.offloaded import selection_for
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.twins import edgekit, edgekit_json, twins_in

from benchmarks.networks import NETWORKS
from edgekit.backends.base import Region
from edgekit.backends.offloading import partition_model
from edgekit.backends.plain.program import program_of
from edgekit.models.model import Model, import_model, open_model


def imported(model: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return import_model(open_model(path))


def node(operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"/{output}", **attributes)


def network(channels: int = 8, size: int = 9) -> onnx.ModelProto:
    """An odd size: tensors have to have room around them."""
    random = np.random.default_rng(0)
    weights = {
        "wide": random.standard_normal((channels, 3, 3, 3)).astype("float32") * 0.3,
        "deep": random.standard_normal((channels, 1, 3, 3)).astype("float32") * 0.3,
        "full": random.standard_normal((channels, channels, 3, 3)).astype("float32") * 0.1,
        "dense": random.standard_normal((channels, 10)).astype("float32"),
    }
    nodes = [
        node("Conv", ["image", "wide"], "stem", pads=[1] * 4),
        node("Relu", ["stem"], "kept"),
        node("Conv", ["kept", "deep"], "apart", pads=[1] * 4, group=channels),
        node("Conv", ["apart", "full"], "together", pads=[1] * 4),
        node("Add", ["together", "kept"], "features"),
        node("MaxPool", ["features"], "small", kernel_shape=[3, 3], strides=[2, 2]),
        node("GlobalAveragePool", ["small"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("MatMul", ["flat", "dense"], "scores"),
        node("Softmax", ["scores"], "shares", axis=1),
    ]
    return onnx_model(nodes, {"image": [1, 3, size, size]}, ["shares", "features"], weights)


def image(size: int = 9) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 3, size, size)).astype("float32")


def only_region(model: Model) -> Region:
    (region,) = partition_model(model, selection_for("acl")).regions
    return region


@needs("acl-rpi4", *ARM_PROGRAMS)
@pytest.mark.parametrize("size", [8, 9, 16])
def test_a_small_network_is_one_region_that_computes_what_onnxruntime_computes(
    size: int, tmp_path: Path
) -> None:
    model = network(size=size)
    expected = judged_by_onnxruntime(model, {"image": image(size)})

    result = offloaded(imported(model, tmp_path), [image(size)])

    assert len(result.regions) == 1
    assert result.left == ()
    for actual, wanted in zip(result.outputs, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@needs("acl-rpi4", *ARM_PROGRAMS)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV2", "SqueezeNet"])
def test_a_network_is_one_region_that_computes_what_onnxruntime_computes(
    name: str, tmp_path: Path
) -> None:
    model = NETWORKS[name]()
    value = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")
    (expected,) = judged_by_onnxruntime(model, {"image": value})

    result = offloaded(imported(model, tmp_path), [value])

    assert len(result.regions) == 1
    assert result.left == ()
    (actual,) = result.outputs
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-5 * np.abs(expected).max())


@needs("acl-rpi4", *ARM_PROGRAMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_an_error_that_names_the_tensor(value: float, tmp_path: Path) -> None:
    arm_machine()
    run = AclRegion(only_region(imported(network(), tmp_path)), {})
    given = image()
    given[0, 1, 2, 3] = value

    with pytest.raises(RuntimeError, match=r"image.* holds NaN or infinity.*non_finite"):
        run(given)


@needs("acl-rpi4", *ARM_PROGRAMS)
@pytest.mark.parametrize("change", [lambda blob: blob[:-4], lambda blob: b""])
def test_weights_that_are_cut_off_are_an_error(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    arm_machine()
    region = only_region(imported(network(), tmp_path))

    with pytest.raises(RuntimeError, match="weights are cut off"):
        AclRegion(region, {}, weights=change(program_of(region).weights))(image())


@needs("acl-rpi4", *ARM_PROGRAMS)
def test_a_tensor_put_together_of_one_is_that_one(tmp_path: Path) -> None:
    """As LSTM and GRU leave it, whose states are one direction's: ACL refuses to join it."""
    arm_machine()
    made = onnx_model(
        [node("Abs", ["x"], "a"), node("Concat", ["a"], "b", axis=1), node("Relu", ["b"], "y")],
        {"x": [1, 3, 4, 5]},
        ["y"],
        {},
    )
    given = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype("float32")

    result = offloaded(imported(made, tmp_path), [given])

    assert result.left == ()
    np.testing.assert_array_equal(result.outputs[0], judged_by_onnxruntime(made, {"x": given})[0])


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    found = partition_model(imported(model, folder), selection_for("acl"))
    (reason,) = {d.reason for d in found.decisions if d.backend is None}
    return reason


def test_what_is_refused_has_a_reason(tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 2, 2, 3), np.float32), "t": np.ones((4, 2, 2, 2), np.float32)}
    shape = {"x": [1, 4, 4, 4]}
    wide = onnx_model([node("ConvTranspose", ["x", "w"], "y")], shape, ["y"], weights)
    dilated = node("ConvTranspose", ["x", "t"], "y", dilations=[2, 2])

    assert "kernel is not square" in refusal(wide, tmp_path)
    assert "it is dilated" in refusal(onnx_model([dilated], shape, ["y"], weights), tmp_path)


@needs(*TWIN, "acl-rpi4")
@pytest.mark.slow
def test_a_model_with_acl_inside_is_proven_on_an_emulated_board(
    tmp_path: Path, twin_cache: Path
) -> None:
    """The generated C++ itself, through a whole build: large enough that a region pays."""
    onnx.save(network(channels=64, size=33), tmp_path / "model.onnx")
    with twins_in(twin_cache), pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("HOME", str(tmp_path))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        ways = ("--board", "rpi4", "--offload", "acl", "-o", "bundle")
        # One after the other: each has its time.
        assert edgekit("build", "model.onnx", *ways).returncode == 0
        assert edgekit("twin", "up", "rpi4").returncode == 0
        report = edgekit_json("deploy", "model.onnx", *ways, "--twin", "--no-bench")

    assert report["verification"]["passed"] is True
    assert '"acl"' in (tmp_path / "bundle" / "manifest.json").read_text()
