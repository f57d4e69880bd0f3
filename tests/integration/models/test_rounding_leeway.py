"""What quantised models are held to: ties may fall either way, and a wrong kernel is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from support.building import run_edgekit
from support.onnx_models import onnx_model

from edgekit.base.tensors import TensorSpec
from edgekit.models.comparison import Leeway, Verification, compare, tolerance_for
from edgekit.models.model import open_model
from edgekit.models.oracle import oracle_for

SIDE, CLASSES = 8, 24


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(5)
        self._left = iter([random.uniform(-1, 1, shape).astype("float32") for _ in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._left, None)
        return None if sample is None else {"image": sample}


def network() -> onnx.ModelProto:
    """Four convolutions, so that one tie spreads, and a classifier."""
    random = np.random.default_rng(3)
    channels = [1, 8, 8, 8, 8]
    nodes, constants, last = [], {}, "image"
    for i in range(4):
        shape = (channels[i + 1], channels[i], 3, 3)
        scale = np.sqrt(2 / np.prod(shape[1:]))
        constants[f"w{i}"] = (random.standard_normal(shape) * scale).astype("float32")
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        last = f"r{i}"
    nodes.append(helper.make_node("Flatten", [last], ["flat"]))
    wide = random.standard_normal((8 * SIDE * SIDE, CLASSES)) / SIDE
    constants["classes"] = wide.astype("float32")
    nodes.append(helper.make_node("MatMul", ["flat", "classes"], ["scores"]))
    return onnx_model(nodes, {"image": [1, 1, SIDE, SIDE]}, ["scores"], constants)


def static(form: QuantFormat, activations: QuantType, per_channel: bool) -> Callable[..., None]:
    def make(source: Path, target: Path) -> None:
        quantize_static(
            str(source),
            str(target),
            Samples((1, 1, SIDE, SIDE)),
            quant_format=form,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
        )

    return make


def dynamic(source: Path, target: Path) -> None:
    quantize_dynamic(str(source), str(target), op_types_to_quantize=["MatMul"])


WAYS = {
    "u8s8": static(QuantFormat.QDQ, QuantType.QUInt8, False),
    "s8s8": static(QuantFormat.QDQ, QuantType.QInt8, True),
    "operators": static(QuantFormat.QOperator, QuantType.QUInt8, False),
    "dynamic": dynamic,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("leeway")
    onnx.save(network(), folder / "float.onnx")
    paths = {name: folder / f"{name}.onnx" for name in WAYS}
    for name, make in WAYS.items():
        make(folder / "float.onnx", paths[name])
    return paths


@pytest.mark.parametrize(
    "name",
    [
        "u8s8",
        "dynamic",
        pytest.param("s8s8", marks=pytest.mark.slow),
        pytest.param("operators", marks=pytest.mark.slow),
    ],
)
def test_what_onnxruntime_quantises_is_deployed(
    made: dict[str, Path], name: str, tmp_path: Path
) -> None:
    ran = run_edgekit("deploy", str(made[name]), "--board", "local", "--no-bench", folder=tmp_path)
    assert ran.code == 0, ran.err


def image() -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(9).uniform(-1, 1, (1, 1, SIDE, SIDE)).astype("float32")}


def judged(right: Path, wrong: Path) -> tuple[Verification, dict[str, Leeway]]:
    """What onnxruntime makes of a model that was spoilt, held to the leeway of the right one."""
    oracle = oracle_for(open_model(right))
    expected = oracle.run(image())
    leeways = dict(oracle.leeways(image(), expected))
    actual = oracle_for(open_model(wrong)).run(image())
    specs = [TensorSpec(name, array.dtype.name, array.shape) for name, array in expected.items()]
    tolerances = {spec.name: tolerance_for(spec, leeway=leeways.get(spec.name)) for spec in specs}
    return compare(expected, actual, specs, tolerances), leeways


def stored(model: onnx.ModelProto, name: str) -> np.ndarray:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    return numpy_helper.to_array(tensor).copy()


def store(model: onnx.ModelProto, name: str, value: np.ndarray) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(value, name))


def move_zero_point(model: onnx.ModelProto) -> None:
    """One step too much behind the last layer: each element is off by just one step."""
    last = [node for node in model.graph.node if node.op_type == "DequantizeLinear"][-1]
    fresh = numpy_helper.from_array(stored(model, last.input[2]) + np.uint8(1), "spoilt")
    model.graph.initializer.append(fresh)
    last.input[2] = "spoilt"


def stretch_scale(model: onnx.ModelProto) -> None:
    """The third layer's weights are dequantised with a scale 3 % too large."""
    scale = stored(model, "w2_scale")
    store(model, "w2_scale", (scale * 1.03).astype(scale.dtype))


def drop_a_tap(model: onnx.ModelProto) -> None:
    """The fourth layer's kernel leaves out one tap of its nine."""
    weights = stored(model, "w3_quantized")
    weights[:, :, 2, 2] = 0
    store(model, "w3_quantized", weights)


@pytest.mark.parametrize("spoil", [move_zero_point, stretch_scale, drop_a_tap])
def test_a_wrong_kernel_is_no_tie(
    made: dict[str, Path], spoil: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    model = onnx.load(made["u8s8"])
    spoil(model)
    onnx.save(model, tmp_path / "spoilt.onnx")

    found, leeways = judged(made["u8s8"], tmp_path / "spoilt.onnx")

    assert leeways["scores"].allowed > 0
    assert not found.passed
    assert judged(made["u8s8"], made["u8s8"])[0].passed


def test_the_step_of_the_last_rounding_is_named_and_measured(made: dict[str, Path]) -> None:
    model = onnx.load(made["u8s8"])
    last = [node for node in model.graph.node if node.op_type == "DequantizeLinear"][-1]

    _, leeways = judged(made["u8s8"], made["u8s8"])

    assert leeways["scores"].allowed >= float(stored(model, last.input[1]))
    assert f"one step of {last.name}" in leeways["scores"].reason


def test_a_float_model_has_no_leeway(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "float.onnx")

    _, leeways = judged(tmp_path / "float.onnx", tmp_path / "float.onnx")

    assert leeways == {}


def test_integer_inputs_are_drawn_for_a_calibration_with_noise(tmp_path: Path) -> None:
    """Tokens choose rows of a table of five; a mask is boolean."""
    random = np.random.default_rng(2)
    constants = {
        "table": random.standard_normal((5, 8)).astype("float32"),
        "w": random.standard_normal((8, 6)).astype("float32"),
        "none": np.zeros((), "float32"),
    }
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Where", ["wide", "y", "none"], ["scores"]),
    ]
    constants["last"] = np.array([2], "int64")
    inputs = [
        helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, [1, 7]),
        helper.make_tensor_value_info("mask", onnx.TensorProto.BOOL, [1, 7]),
    ]
    output = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [1, 7, 6])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tokens", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "tokens.onnx")

    ran = run_edgekit(
        "quantize", "tokens.onnx", "--random", "4", "-o", "small.onnx", folder=tmp_path
    )
    assert ran.code == 0, ran.err
    ran = run_edgekit("deploy", "small.onnx", "--board", "local", "--no-bench", folder=tmp_path)
    assert ran.code == 0, ran.err


def halves(offset: float) -> onnx.ModelProto:
    """A tangent near its pole of a sum in float16, which onnxruntime does not round."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Tan", ["sum"], ["tan"]),
        helper.make_node("Cast", ["tan"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    kind = onnx.TensorProto.FLOAT16
    ends = [helper.make_tensor_value_info("a", kind, [64])]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [64])
    values = np.full(64, 1.0 + offset, "float16")
    graph = helper.make_graph(
        nodes, "halves", ends, [result], [numpy_helper.from_array(values, "b")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_half_precision_is_held_to_what_it_is_worth(tmp_path: Path) -> None:
    onnx.save(halves(0.0), tmp_path / "net.onnx")
    onnx.save(halves(0.05), tmp_path / "spoilt.onnx")
    inputs = {"a": np.linspace(0.0, 0.55, 64).astype("float16")}
    spec = TensorSpec("y", "float32", (64,))
    oracle = oracle_for(open_model(tmp_path / "net.onnx"))
    expected = oracle.run(inputs)
    tolerance = {"y": tolerance_for(spec, leeway=oracle.leeways(inputs, expected).get("y"))}
    total = inputs["a"] + np.float16(1.0)
    rounded = {"y": np.tan(total).astype("float32")}
    spoilt = oracle_for(open_model(tmp_path / "spoilt.onnx")).run(inputs)

    assert not compare(expected, rounded, [spec]).passed
    assert compare(expected, rounded, [spec], tolerance).passed
    assert not compare(expected, spoilt, [spec], tolerance).passed


JUMPS = """
<ir_version: 8, opset_import: ["" : 17]>
jumps (float[1, 400] x) => (int64[1, 400] whole, double[1, 400] wide,
                            int64[1, 1] first, float[1, 400] plain)
<float far = {13.3}>
{
    much = Mul (x, far)
    sine = Sin (much)
    steps = Mul (sine, far)
    whole = Cast <to = 7> (steps)
    wide = Cast <to = 11> (sine)
    first = ArgMax <axis = 1> (x)
    plain = Identity (sine)
}
"""
"""Floats that become whole numbers, doubles or choices."""


def jumping(folder: Path, last: str = "") -> tuple[Path, dict[str, np.ndarray]]:
    """The model, with another operator behind the sine; and inputs, one of which makes a sine of
    float32 a tie."""
    text = JUMPS.replace("steps = Mul (sine, far)", last) if last else JUMPS
    path = folder / f"{len(last)}.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    x = np.random.default_rng(4).uniform(-1, 1, (1, 400)).astype("float32")
    x[0, 0] = np.float32(np.arcsin(2 / 13.3) / 13.3)
    return path, {"x": x}


def test_a_float_that_decides_may_fall_either_way(tmp_path: Path) -> None:
    """One that lies between two integers, and float32 shown as float64; nothing else."""
    path, inputs = jumping(tmp_path)
    oracle = oracle_for(open_model(path))
    expected = oracle.run(inputs)

    leeways = oracle.leeways(inputs, expected)

    assert set(leeways) == {"whole", "wide"}
    assert leeways["whole"].elements(400) <= 4
    assert leeways["wide"].allowed < 1e-3


def test_a_wrong_number_is_no_jump(tmp_path: Path) -> None:
    path, inputs = jumping(tmp_path)
    spoilt, _ = jumping(tmp_path, "more = Mul (sine, far) steps = Round (more)")
    oracle = oracle_for(open_model(path))
    expected = oracle.run(inputs)
    leeways = oracle.leeways(inputs, expected)
    actual = oracle_for(open_model(spoilt)).run(inputs)
    specs = [TensorSpec(name, array.dtype.name, array.shape) for name, array in expected.items()]
    tolerances = {spec.name: tolerance_for(spec, leeway=leeways.get(spec.name)) for spec in specs}

    found = compare(expected, actual, specs, tolerances)

    assert [tensor.name for tensor in found.tensors if not tensor.passed] == ["whole"]


TIES = """
<ir_version: 8, opset_import: ["" : 17]>
ties (float[1, 1, 1, 40] x) => (bool[1, 1, 40, 40] below)
<float[0] none = {}, int64[4] size = {1, 1, 40, 40}>
{
    rows = Resize <mode = "cubic", coordinate_transformation_mode = "half_pixel">
        (x, none, none, size)
    highest = ReduceMax <axes = [2]> (rows)
    below = Less (rows, highest)
}
"""
"""Forty equal rows, and which of their elements lie below the largest of their column: none do but
for rounding, and every row rounds in a way of its own."""


def test_equal_numbers_that_rounding_parts_may_be_equal(tmp_path: Path) -> None:
    """A precise runtime finds no element below another, onnxruntime finds most."""
    onnx.save(onnx.parser.parse_model(TIES), tmp_path / "net.onnx")
    x = np.random.default_rng(8).uniform(-1, 1, (1, 1, 1, 40)).astype("float32")
    x[..., 20:] = 0.0  # a sum of zeros has no rounding
    precise = {"below": np.zeros((1, 1, 40, 40), bool)}
    spec = TensorSpec("below", "bool", (1, 1, 40, 40))
    oracle = oracle_for(open_model(tmp_path / "net.onnx"))
    expected = oracle.run({"x": x})
    assert 0.2 < expected["below"].mean() < 0.6

    tolerance = {"below": tolerance_for(spec, leeway=oracle.leeways({"x": x}, expected)["below"])}

    assert compare(expected, precise, [spec], tolerance).passed
    assert not compare(expected, {"below": ~expected["below"]}, [spec], tolerance).passed


def test_sums_with_constants_are_rounded_to_half_precision(tmp_path: Path) -> None:
    """onnxruntime adds in float32, and does not round before it casts to float64."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    sums (float16[64] x) => (double[64] y) <float16[1] c = {17946}>
    {
        sum = Add (x, c)
        y = Cast <to = 11> (sum)
    }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    inputs = {"x": np.linspace(0.0, 0.01, 64).astype("float16")}
    rounded = {"y": (inputs["x"] + np.float16(6.1)).astype("float64")}
    spec = TensorSpec("y", "float64", (64,))
    oracle = oracle_for(open_model(tmp_path / "net.onnx"))
    expected = oracle.run(inputs)

    tolerance = tolerance_for(spec, leeway=oracle.leeways(inputs, expected).get("y"))

    assert not compare(expected, rounded, [spec]).passed
    assert compare(expected, rounded, [spec], {"y": tolerance}).passed
    assert tolerance.leeway is not None and tolerance.leeway.allowed < 0.02


def test_half_precision_decides_as_if_every_result_were_rounded(tmp_path: Path) -> None:
    """GELU of these is a little below zero in float32, and zero in float16, because 1 + erf(x) is:
    the floor differs for all of them, and no nudge shows it."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    floors (float16[6] x) => (float16[6] y)
    <float16[1] root = {15784}, float16[1] one = {15360}, float16[1] half = {14336}>
    {
        scaled = Div (x, root)
        bent = Erf (scaled)
        more = Add (bent, one)
        product = Mul (x, more)
        gelu = Mul (product, half)
        y = Floor (gelu)
    }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    x = np.array([-3.671875, -3.677734375, -3.6875, -3.6953125, -3.69921875, -3.71875], "float16")
    spec = TensorSpec("y", "float16", (6,))
    oracle = oracle_for(open_model(tmp_path / "net.onnx"))
    expected = oracle.run({"x": x})
    assert (expected["y"] == -1).all()

    tolerance = {"y": tolerance_for(spec, leeway=oracle.leeways({"x": x}, expected).get("y"))}

    assert compare(expected, {"y": np.zeros_like(x)}, [spec], tolerance).passed
    assert not compare(expected, {"y": expected["y"] + np.float16(3)}, [spec], tolerance).passed


def test_a_float_beyond_the_whole_numbers_has_no_right_result(tmp_path: Path) -> None:
    """onnxruntime gives the least number for both; edgekit the nearest."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    casts (float[40] x) => (int32[40] y)
    { y = Cast <to = 6> (x) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    x = np.linspace(1.5, 40.5, 40).astype("float32")
    x[:3] = np.inf, 1e20, np.nan
    nearest = x.astype("int64").astype("int32")
    nearest[:3] = 2**31 - 1, 2**31 - 1, 0
    spec = TensorSpec("y", "int32", (40,))
    oracle = oracle_for(open_model(tmp_path / "net.onnx"))
    expected = oracle.run({"x": x})

    tolerance = {"y": tolerance_for(spec, leeway=oracle.leeways({"x": x}, expected).get("y"))}

    assert not compare(expected, {"y": nearest}, [spec]).passed
    assert compare(expected, {"y": nearest}, [spec], tolerance).passed
    assert not compare(expected, {"y": nearest + 1}, [spec], tolerance).passed


def test_a_quantised_model_whose_products_share_weights_has_a_leeway_and_a_time(
    tmp_path: Path,
) -> None:
    """onnxruntime 1.31, told to be precise, can't load this with its optimisations."""
    random = np.random.default_rng(4)
    weights = {
        "s": np.array(0.02, "float32"),
        "z": np.array(0, "int8"),
        "w": random.integers(-127, 127, (32, 32)).astype("int8"),
    }
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["weight"])]
    last = "x"
    for i in range(2):
        nodes += [
            helper.make_node("QuantizeLinear", [last, "s", "z"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]),
            helper.make_node("Gemm", [f"d{i}", "weight", f"b{i}"], [f"m{i}"], transB=1),
        ]
        weights[f"bias{i}"] = random.integers(-9, 9, 32).astype("int32")
        weights["product"] = np.array(0.0004, "float32")
        weights["zero"] = np.array(0, "int32")
        nodes.insert(
            0, helper.make_node("DequantizeLinear", [f"bias{i}", "product", "zero"], [f"b{i}"])
        )
        last = f"m{i}"
    nodes += [
        helper.make_node("QuantizeLinear", [last, "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    file = tmp_path / "shared.onnx"
    onnx.save(onnx_model(nodes, {"x": [1, 32]}, ["y"], weights), file)
    oracle = oracle_for(open_model(file))
    inputs = {"x": random.uniform(-0.1, 0.1, (1, 32)).astype("float32")}

    assert oracle.leeways(inputs, oracle.run(inputs))["y"].allowed >= 0.02
    assert len(oracle.time(inputs, threads=1, runs=3)) == 3
