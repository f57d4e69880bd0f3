"""A model with other shapes than the file fixes, and with integer ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from support.onnx_models import onnx_model
from support.tflite_models import Op, T, constant, tflite_bytes

import edgekit
from edgekit.base.errors import ModelError
from edgekit.models.model import Adaptation, import_model, open_model

RANDOM = np.random.default_rng(11)
RESHAPED = Adaptation(reshape=True)
INTEGERS = Adaptation(ends="int8")
PLACEHOLDER = [10, 3, 32, 32]


def convolutional(folder: Path, *last: onnx.NodeProto, output: Sequence[int]) -> Path:
    """A network that an exporter fixed at 10x3x32x32, of convolutions alone up to `last`."""
    weights = {
        "w": RANDOM.standard_normal((4, 3, 3, 3)).astype("float32"),
        "v": RANDOM.standard_normal((2, 4, 1, 1)).astype("float32"),
        "rows": np.array([10, -1], "int64"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"]),
        *last,
    ]
    model = onnx_model(nodes, {"x": PLACEHOLDER}, ["z" if last else "y"], weights)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    for extent in output:
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = extent
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def test_a_fully_convolutional_model_takes_another_shape(tmp_path: Path) -> None:
    path = convolutional(tmp_path, output=[10, 2, 16, 16])
    with pytest.raises(ModelError, match="dimension 0 is fixed at 10") as caught:
        import_model(open_model(path, {"x": (1, 3, 48, 64)}))
    assert "reshape" in (caught.value.hint or "")
    ws = edgekit.Workspace(tmp_path)
    shape = (1, 3, 48, 64)
    bundle = ws.build(path, board="local", shapes={"x": shape}, reshape=True)
    assert [entry.spec.shape for entry in bundle.manifest.outputs] == [(1, 2, 24, 32)]
    assert ws.verify(bundle.path).passed

    open_shapes = onnx.load(path)
    for item in (*open_shapes.graph.input, *open_shapes.graph.output):
        item.type.tensor_type.ClearField("shape")
    session = onnxruntime.InferenceSession(open_shapes.SerializeToString())
    x = bundle.reference_inputs()["x"]
    expected = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(bundle.reference_outputs()["y"], expected, rtol=1e-5, atol=1e-5)
    np.save(tmp_path / "x.npy", x)
    own = ws.verify(
        bundle.path, [str(tmp_path / "x.npy")], model=path, shapes={"x": shape}
    )  # The adaptation is found by the model's hash.
    assert own.passed


def test_a_batch_that_the_graph_holds_itself_is_named(tmp_path: Path) -> None:
    last = helper.make_node("Reshape", ["y", "rows"], ["z"], name="flatten")
    path = convolutional(tmp_path, last, output=[10, 512])
    same_batch = open_model(path, {"x": (10, 3, 64, 64)}, adaptation=RESHAPED)
    assert import_model(same_batch).outputs[0].shape == (10, 2048)
    with pytest.raises(ModelError, match=r"dimension 0 of 'y' becomes 20, and Reshape .*makes 10"):
        import_model(open_model(path, {"x": (20, 3, 32, 32)}, adaptation=RESHAPED))


def test_a_batch_in_a_constant_is_named(tmp_path: Path) -> None:
    weights = {"state": RANDOM.standard_normal((10, 4)).astype("float32")}
    model = onnx_model(
        [helper.make_node("Add", ["x", "state"], ["y"])], {"x": [10, 4]}, ["y"], weights
    )
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=r"output 'y' with 10 all the same"):
        import_model(open_model(tmp_path / "net.onnx", {"x": (1, 4)}, adaptation=RESHAPED))


def test_a_tflite_model_takes_another_shape(tmp_path: Path) -> None:
    content = tflite_bytes(
        [
            T("x", (1, 8, 8, 3)),
            constant("w", RANDOM.standard_normal((4, 3, 3, 3))),
            constant("b", RANDOM.standard_normal(4)),
            T("y"),
        ],
        [
            Op(
                "CONV_2D",
                ("x", "w", "b"),
                ("y",),
                {"table": "Conv2DOptions", "strideH": 1, "strideW": 1},
            )
        ],
        ["x"],
        ["y"],
    )
    (tmp_path / "net.tflite").write_bytes(content)
    ws = edgekit.Workspace(tmp_path)
    shapes = {"x": (2, 12, 10, 3)}
    bundle = ws.build(tmp_path / "net.tflite", board="local", shapes=shapes, reshape=True)
    assert bundle.manifest.outputs[0].spec.shape == (2, 12, 10, 4)
    assert ws.verify(bundle.path).passed


def quantised_tflite(folder: Path) -> Path:
    stored = RANDOM.integers(-127, 128, (5, 6)).astype("int8")
    content = tflite_bytes(
        [
            T("x", (2, 6)),
            T("q", (2, 6), "int8", scale=0.04, zero=-3),
            constant("w", stored, scale=0.01),
            constant("b", RANDOM.integers(-900, 900, 5).astype("int32"), scale=0.0004),
            T("s", (2, 5), "int8", scale=0.06, zero=7),
            T("y", (2, 5)),
        ],
        [
            Op("QUANTIZE", ("x",), ("q",)),
            Op("FULLY_CONNECTED", ("q", "w", "b"), ("s",), {"table": "FullyConnectedOptions"}),
            Op("DEQUANTIZE", ("s",), ("y",)),
        ],
        ["x"],
        ["y"],
    )
    (folder / "net.tflite").write_bytes(content)
    return folder / "net.tflite"


def quantised_onnx(folder: Path) -> Path:
    weights = {"s": np.float32(0.05), "z": np.int8(4), "t": np.float32(0.02), "u": np.int8(-9)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["f"]),
        helper.make_node("Sigmoid", ["f"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "t", "u"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "t", "u"], ["y"]),
    ]
    onnx.save(onnx_model(nodes, {"x": [3, 7]}, ["y"], weights), folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize("write", [quantised_tflite, quantised_onnx])
def test_float_ends_become_integers_on_request(write: object, tmp_path: Path) -> None:
    path = write(tmp_path)  # type: ignore[operator]
    ws = edgekit.Workspace(tmp_path)
    bundle = ws.build(path, board="local", ends="int8")
    (entry,), (result,) = bundle.manifest.inputs, bundle.manifest.outputs
    assert (entry.spec.dtype, result.spec.dtype) == ("int8", "int8")
    for spec in (entry.spec, result.spec):
        assert spec.quantization is not None
        assert spec.quantization.zero_points[0] != 0
    assert ws.verify(bundle.path).passed
    plain = ws.build(path, board="local", out=tmp_path / "plain")
    assert plain.manifest.inputs[0].spec.dtype == "float32"
    scale = np.float32(entry.spec.quantization.scales[0])
    stored = RANDOM.integers(-128, 128, entry.spec.shape).astype("int8")
    real = (stored.astype("int32") - entry.spec.quantization.zero_points[0]).astype("float32")
    with ws.device("local").open(bundle) as session:
        integers = session.run({"x": stored})["y"]
    with ws.device("local").open(plain) as session:
        floats = session.run({"x": real * scale})["y"]
    steps = result.spec.quantization
    np.testing.assert_allclose(
        (integers.astype("int32") - steps.zero_points[0]) * np.float32(steps.scales[0]),
        floats,
        rtol=1e-5,
    )


def test_a_model_without_quantised_ends_says_so(tmp_path: Path) -> None:
    path = convolutional(tmp_path, output=[10, 2, 16, 16])
    with pytest.raises(ModelError, match="no float input that is only quantised"):
        import_model(open_model(path, adaptation=INTEGERS))


def test_a_project_file_asks_for_integer_ends(tmp_path: Path) -> None:
    path = quantised_tflite(tmp_path)
    (tmp_path / "edgekit.toml").write_text(
        f'schema = 1\nmodel = "{path.name}"\nboard = "local"\nends = "int8"\n'
    )
    source = edgekit.Workspace(tmp_path).request().source
    assert source.adaptation == INTEGERS
