"""Quantised TFLite operators give LiteRT's numbers: exactly, where LiteRT computes in integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.base.errors import UnsupportedModelError
from edgekit.models.model import import_model
from edgekit.models.tflite.operators import COMPUTED_QUANTIZED, MOVED

RANDOM = np.random.default_rng(3)
X = T("x", (1, 6, 8, 4), "int8", scale=0.037, zero=-11)
RESULT = T("r", (), "int8", scale=0.071, zero=5)
SAME_SCALE = T("r", (), "int8", scale=0.037, zero=-11)
WEIGHT_SCALES = (0.011, 0.02, 0.0071, 0.031, 0.013)


def whole(shape: Sequence[int], dtype: str = "int8") -> np.ndarray:
    if dtype == "int8":
        return RANDOM.integers(-127, 128, tuple(shape)).astype("int8")
    return RANDOM.integers(-3000, 3000, tuple(shape)).astype(dtype)


@dataclass(frozen=True)
class Case:
    operator: str
    constants: tuple[T, ...] = ()
    result: T = RESULT
    options: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[T, ...] = ()
    steps: int = 0
    note: str = ""

    @property
    def label(self) -> str:
        return f"{self.operator} {self.note}".strip().replace(" ", "-")


def options(table: str, **fields: Any) -> dict[str, Any]:
    return {"table": table, **fields}


def convolution(note: str, *, scales: tuple[float, ...] | float, **fields: Any) -> Case:
    weights = constant("w", whole((5, 3, 3, 4)), scale=scales)
    biases = np.atleast_1d(scales) * 0.037
    bias = constant("b", whole((5,), "int32"), scale=tuple(np.broadcast_to(biases, 5)))
    settings = {"padding": 0, "strideH": 1, "strideW": 2, **fields}
    return Case("CONV_2D", (weights, bias), options=options("Conv2DOptions", **settings), note=note)


def depthwise(multiplier: int) -> Case:
    channels = 4 * multiplier
    scales = tuple(float(scale) for scale in RANDOM.uniform(0.005, 0.03, channels))
    weights = constant("w", whole((1, 3, 3, channels)), scale=scales, axis=3)
    bias_scales = tuple(scale * 0.037 for scale in scales)
    bias = constant("b", whole((channels,), "int32"), scale=bias_scales)
    return Case(
        "DEPTHWISE_CONV_2D",
        (weights, bias),
        options=options(
            "DepthwiseConv2DOptions",
            padding=0,
            strideH=2,
            strideW=1,
            depthMultiplier=multiplier,
        ),
        note=f"times {multiplier}",
    )


def dense(activation: int) -> Case:
    weights = constant("w", whole((7, 192)), scale=0.004)
    bias = constant("b", whole((7,), "int32"), scale=0.004 * 0.037)
    settings = options("FullyConnectedOptions", fusedActivationFunction=activation)
    return Case("FULLY_CONNECTED", (weights, bias), options=settings, note=f"act {activation}")


def dense_of_ties() -> Case:
    """A factor so large that rounding twice would give another number in every few elements."""
    weights = constant("w", RANDOM.integers(-2, 3, (16, 4)).astype("int8"), scale=0.577)
    bias = constant("b", whole((16,), "int32") // 50, scale=0.577 * 0.037)
    settings = options("FullyConnectedOptions")
    return Case("FULLY_CONNECTED", (weights, bias), options=settings, note="on ties")


def dense_half_way() -> Case:
    """A factor of one quarter: many a sum lies half way between two steps, above zero and below."""
    weights = constant("w", RANDOM.integers(-3, 4, (16, 4)).astype("int8"), scale=0.5)
    bias = constant("b", RANDOM.integers(-40, 41, (16,)).astype("int32"), scale=0.5 * 0.037)
    settings = options("FullyConnectedOptions")
    result = T("r", (), "int8", scale=2 * 0.037, zero=3)
    return Case("FULLY_CONNECTED", (weights, bias), result=result, options=settings, note="half")


def pool(operator: str, padding: int, activation: int = 0) -> Case:
    settings = options(
        "Pool2DOptions",
        padding=padding,
        strideH=2,
        strideW=1,
        filterHeight=2,
        filterWidth=2,
        fusedActivationFunction=activation,
    )
    note = ("same" if padding == 0 else "valid") + (" with relu" if activation else "")
    return Case(operator, result=SAME_SCALE, options=settings, note=note)


OTHER = T("y", (1, 1, 8, 4), "int8", scale=0.052, zero=23)
LIKE_X = T("y", (1, 6, 8, 4), "int8", scale=0.037, zero=-11)
PROBABILITY = T("r", (), "int8", scale=1 / 256, zero=-128)
AXES = constant("a", np.array([1, 2], "int32"))
PADS = constant("p", np.array([[0, 0], [1, 2], [0, 3], [0, 0]], "int32"))
CASES: tuple[Case, ...] = (
    convolution("per channel", scales=WEIGHT_SCALES),
    convolution("per tensor", scales=0.013),
    convolution("valid", scales=WEIGHT_SCALES, padding=1),
    convolution("with relu", scales=WEIGHT_SCALES, fusedActivationFunction=1),
    convolution("with relu6", scales=WEIGHT_SCALES, fusedActivationFunction=3),
    convolution("dilated", scales=WEIGHT_SCALES, strideW=1, dilationHFactor=2, dilationWFactor=2),
    depthwise(1),
    depthwise(2),
    dense(0),
    dense(1),
    dense_of_ties(),
    dense_half_way(),
    Case(
        "FULLY_CONNECTED",
        (
            constant("w", whole((7, 192)), scale=0.004),
            constant("b", whole((7,), "int32")),
        ),
        options=options("FullyConnectedOptions"),
        note="bias without a scale",
    ),
    Case("ADD", others=(OTHER,), options=options("AddOptions")),
    Case(
        "ADD",
        others=(OTHER,),
        options=options("AddOptions", fusedActivationFunction=3),
        note="with relu6",
    ),
    Case("SUB", others=(OTHER,), options=options("SubOptions")),
    Case("MUL", others=(OTHER,), options=options("MulOptions")),
    Case(
        "MUL",
        others=(OTHER,),
        options=options("MulOptions", fusedActivationFunction=1),
        note="with relu",
    ),
    pool("AVERAGE_POOL_2D", 0),
    pool("AVERAGE_POOL_2D", 1),
    pool("AVERAGE_POOL_2D", 1, activation=1),
    pool("MAX_POOL_2D", 0),
    Case("QUANTIZE", options=options("QuantizeOptions"), note="from int8"),
    Case("DEQUANTIZE", result=T("r", ()), options=options("DequantizeOptions")),
    Case("PAD", (PADS,), result=SAME_SCALE),
    Case("RESHAPE", (constant("s", np.array([1, 48, 4], "int32")),), result=SAME_SCALE),
    Case("TRANSPOSE", (constant("p", np.array([0, 3, 1, 2], "int32")),), result=SAME_SCALE),
    Case(
        "MAXIMUM", others=(T("y", (1, 6, 8, 4), "int8", scale=0.037, zero=-11),), result=SAME_SCALE
    ),
    Case(
        "CONCATENATION",
        others=(T("y", (1, 6, 8, 2), "int8", scale=0.037, zero=-11),),
        result=SAME_SCALE,
        options=options("ConcatenationOptions", axis=3),
    ),
    Case("MEAN", (AXES,), options=options("ReducerOptions", keepDims=True)),
    *(
        Case(name, (AXES,), result=SAME_SCALE, options=options("ReducerOptions"))
        for name in ("REDUCE_MAX", "REDUCE_MIN")
    ),
    Case("MINIMUM", others=(LIKE_X,), result=SAME_SCALE),
    Case("SQUARED_DIFFERENCE", others=(LIKE_X,)),
    *(
        Case(name, others=(LIKE_X,), result=T("r", (), "bool"))
        for name in ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
    ),
    *(Case(name, steps=1) for name in ("EXP",)),
    *(Case(name) for name in ("ABS", "RELU", "RELU6", "RELU_N1_TO_1")),
    *(
        Case(
            name,
            (constant("a", np.int32(3)),),
            result=T("r", (), "int64"),
            options=options(table, outputType=4),
        )
        for name, table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions"))
    ),
    Case("LOG_SOFTMAX", result=T("r", (), "int8", scale=16 / 256, zero=127), steps=1),
    Case("SOFTMAX", result=PROBABILITY, options=options("SoftmaxOptions", beta=1.0), steps=1),
    Case("LOGISTIC", result=PROBABILITY, steps=1),
    Case("TANH", result=T("r", (), "int8", scale=1 / 128, zero=0), steps=1),
    Case("HARD_SWISH", steps=1),
    Case("LEAKY_RELU", options=options("LeakyReluOptions", alpha=0.3)),
    Case(
        "RESIZE_BILINEAR",
        (constant("s", np.array([9, 5], "int32")),),
        result=SAME_SCALE,
        options=options("ResizeBilinearOptions", halfPixelCenters=True),
    ),
)


def build(one: Case) -> bytes:
    inputs = (X, *one.others)
    names = tuple(tensor.name for tensor in (*inputs, *one.constants))
    return tflite_bytes(
        [*inputs, *one.constants, one.result],
        [Op(one.operator, names, ("r",), one.options)],
        [tensor.name for tensor in inputs],
        ["r"],
    )


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.label)
def test_quantized_operator_gives_the_numbers_of_litert(one: Case, tmp_path: Path) -> None:
    source = write_model(tmp_path, build(one))
    feeds = {tensor.name: whole(tensor.shape) for tensor in (X, *one.others)}
    found, expected = run_both(source, feeds)
    assert found["r"].shape == expected["r"].shape
    assert found["r"].dtype == expected["r"].dtype
    if found["r"].dtype != np.int8:
        np.testing.assert_array_equal(found["r"], expected["r"])
        return
    steps = np.abs(found["r"].astype(int) - expected["r"].astype(int))
    assert steps.max() <= one.steps
    assert len(np.unique(expected["r"])) > 1, "an output that does not vary proves nothing"


def test_floats_on_a_tie_are_quantised_away_from_zero(tmp_path: Path) -> None:
    ties = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 1e9], "float32")
    content = tflite_bytes(
        [T("x", (8,)), T("r", (8,), "int8", scale=1.0, zero=0)],
        [Op("QUANTIZE", ("x",), ("r",), options("QuantizeOptions"))],
        ["x"],
        ["r"],
    )
    found, _ = run_both(write_model(tmp_path, content), {"x": ties})
    assert found["r"].tolist() == [-3, -2, -1, 1, 2, 3, 0, 127]


def test_imported_model_keeps_the_form_that_int8_backends_look_for(tmp_path: Path) -> None:
    from support.relax_modules import operators_in

    model = import_model(write_model(tmp_path, build(convolution("", scales=WEIGHT_SCALES))))
    names = [name for name in operators_in(model.module) if name not in ("const", "shape")]
    assert names.count("dequantize") == 3
    assert names.index("nn.conv2d") < names.index("add") < names.index("quantize")


def test_moving_values_between_scales_is_refused(tmp_path: Path) -> None:
    case = Case("PAD", (PADS,), result=RESULT)
    with pytest.raises(UnsupportedModelError, match=r"PAD \(operator 0.*quantised differently"):
        import_model(write_model(tmp_path, build(case)))


def test_weights_shuffled_for_one_kind_of_processor_are_refused(tmp_path: Path) -> None:
    shuffled = options("FullyConnectedOptions", weightsFormat=1)
    content = tflite_bytes(
        [X, constant("w", whole((7, 192)), scale=0.004), T("r", (1, 7), "int8", scale=1.0)],
        [Op("FULLY_CONNECTED", ("x", "w"), ("r",), shuffled)],
        ["x"],
        ["r"],
    )
    with pytest.raises(UnsupportedModelError, match=r"FULLY_CONNECTED.*shuffled"):
        import_model(write_model(tmp_path, content))


def test_averaging_values_of_one_scale_into_another_is_refused(tmp_path: Path) -> None:
    case = replace(pool("AVERAGE_POOL_2D", 1), result=RESULT)
    with pytest.raises(UnsupportedModelError, match=r"AVERAGE_POOL_2D.*quantised differently"):
        import_model(write_model(tmp_path, build(case)))


def test_every_quantised_operator_on_the_list_is_tested() -> None:
    tested = {one.operator for one in CASES}
    elsewhere = {"BATCH_MATMUL", "TRANSPOSE_CONV"}  # tests/support/tflite_operators.py
    assert tested - MOVED == COMPUTED_QUANTIZED - elsewhere


def test_quantized_transposed_convolution_is_off_by_a_step_at_most(tmp_path: Path) -> None:
    weights = constant("w", whole((5, 3, 3, 4)), scale=WEIGHT_SCALES)
    content = tflite_bytes(
        [constant("s", np.array([1, 12, 16, 5], "int32")), weights, X, RESULT],
        [
            Op(
                "TRANSPOSE_CONV",
                ("s", "w", "x"),
                ("r",),
                options("TransposeConvOptions", padding=0, strideH=2, strideW=2),
            )
        ],
        ["x"],
        ["r"],
    )
    found, expected = run_both(write_model(tmp_path, content), {"x": whole(X.shape)})
    assert np.abs(found["r"].astype(int) - expected["r"].astype(int)).max() <= 1


def pooled_convolution(x: T, weights: T, bias: T, y: T) -> bytes:
    convolution_options = options("Conv2DOptions", padding=0, strideH=1, strideW=1)
    pool_options = options(
        "Pool2DOptions", padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2
    )
    return tflite_bytes(
        [x, weights, bias, y, T("r", (), y.dtype, scale=y.scale, zero=y.zero)],
        [
            Op("CONV_2D", ("x", "w", "b"), ("y",), convolution_options),
            Op("AVERAGE_POOL_2D", ("y",), ("r",), pool_options),
        ],
        ["x"],
        ["r"],
    )


def test_models_quantised_to_uint8_are_off_by_a_step_at_most(tmp_path: Path) -> None:
    values = RANDOM.integers(0, 256, (5, 3, 3, 4)).astype("uint8")
    content = pooled_convolution(
        T("x", (1, 6, 8, 4), "uint8", scale=0.037, zero=117),
        constant("w", values, scale=0.013, zero=121),
        constant("b", whole((5,), "int32"), scale=0.037 * 0.013),
        T("y", (), "uint8", scale=0.071, zero=130),
    )
    data = RANDOM.integers(0, 256, (1, 6, 8, 4)).astype("uint8")
    found, expected = run_both(write_model(tmp_path, content), {"x": data})
    assert np.abs(found["r"].astype(int) - expected["r"].astype(int)).max() <= 1
    assert len(np.unique(expected["r"])) > 10
