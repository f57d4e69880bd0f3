"""Every TFLite operator that edgekit says it imports computes what LiteRT computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.models.tflite.operators import COMPUTED, MOVED

RANDOM = np.random.default_rng(7)
IMAGE = T("x", (1, 6, 8, 4))
SAME, VALID = 0, 1


@dataclass(frozen=True)
class Case:
    operator: str
    inputs: tuple[T, ...] = (IMAGE,)
    constants: tuple[T, ...] = ()
    results: tuple[str, ...] = ("float32",)
    options: Mapping[str, Any] = field(default_factory=dict)
    positive: bool = False
    note: str = ""

    @property
    def label(self) -> str:
        return f"{self.operator} {self.note}".strip().replace(" ", "-")


def case(operator: str, *constants: T, **more: Any) -> Case:
    return Case(operator, constants=constants, **more)


def two(operator: str, *, dtype: str = "float32", **more: Any) -> Case:
    inputs = (T("x", (2, 3, 4), dtype), T("y", (3, 1), dtype))
    return Case(operator, inputs=inputs, **more)


def ints(name: str, *values: int) -> T:
    return constant(name, np.array(values, "int32"))


def options(table: str, **fields: Any) -> dict[str, Any]:
    return {"table": table, **fields}


def window(table: str, padding: int, **fields: Any) -> dict[str, Any]:
    return options(table, padding=padding, strideH=2, strideW=1, **fields)


def reducer(keep: bool) -> dict[str, Any]:
    return options("ReducerOptions", keepDims=keep)


WEIGHTS = constant("w", RANDOM.standard_normal((5, 3, 3, 4)))
BIAS = constant("b", RANDOM.standard_normal(5))
UNARY = """
    ABS CEIL COS ELU EXP FLOOR GELU HARD_SWISH LOGISTIC LOG_SOFTMAX NEG RELU
    RELU6 RELU_0_TO_1 RELU_N1_TO_1 ROUND SIGN SIN SQUARE TANH ZEROS_LIKE
"""
BINARY = {
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "DIV": "DivOptions",
    "MAXIMUM": None,
    "MINIMUM": None,
    "SQUARED_DIFFERENCE": None,
    "FLOOR_DIV": None,
    "FLOOR_MOD": None,
}
CASES: tuple[Case, ...] = (
    *(case(name) for name in UNARY.split()),
    *(case(name, positive=True) for name in ("LOG", "SQRT", "RSQRT")),
    *(two(name, options=options(table) if table else {}) for name, table in BINARY.items()),
    *(
        two(name, results=("bool",))
        for name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
    ),
    two("ADD", options=options("AddOptions", fusedActivationFunction=1), note="with relu"),
    two("POW", positive=True),
    *(two(name, dtype="bool", results=("bool",)) for name in ("LOGICAL_AND", "LOGICAL_OR")),
    Case("LOGICAL_NOT", inputs=(T("x", (3, 4), "bool"),), results=("bool",)),
    Case("ADD_N", inputs=(T("x", (3, 4)), T("y", (3, 4)), T("z", (3, 4)))),
    case("L2_NORMALIZATION", options=options("L2NormOptions")),
    case("SOFTMAX", options=options("SoftmaxOptions", beta=1.0)),
    case("SOFTMAX", options=options("SoftmaxOptions", beta=2.5), note="with beta"),
    case("LEAKY_RELU", options=options("LeakyReluOptions", alpha=0.3)),
    case("PRELU", constant("a", RANDOM.standard_normal((1, 1, 4)))),
    *(
        case(name, ints("a", 1, 2), options=reducer(keep), note=f"keep {keep}")
        for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
        for keep in (True, False)
    ),
    *(
        Case(
            name,
            inputs=(T("x", (3, 4), "bool"),),
            constants=(ints("a", 1),),
            results=("bool",),
            options=reducer(False),
        )
        for name in ("REDUCE_ANY", "REDUCE_ALL")
    ),
    *(
        case(
            name,
            options=window("Pool2DOptions", padding, filterHeight=3, filterWidth=2),
            note=note,
        )
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D")
        for padding, note in ((SAME, "same"), (VALID, "valid"))
    ),
    case("L2_POOL_2D", options=window("Pool2DOptions", VALID, filterHeight=3, filterWidth=2)),
    case("CONV_2D", WEIGHTS, BIAS, options=window("Conv2DOptions", SAME), note="same"),
    case(
        "CONV_2D",
        WEIGHTS,
        BIAS,
        options=window("Conv2DOptions", VALID, fusedActivationFunction=3),
        note="valid with relu6",
    ),
    case(
        "CONV_2D",
        WEIGHTS,
        BIAS,
        options=options(
            "Conv2DOptions",
            padding=SAME,
            strideH=1,
            strideW=1,
            dilationHFactor=2,
            dilationWFactor=2,
        ),
        note="dilated",
    ),
    *(
        case(
            "DEPTHWISE_CONV_2D",
            constant("w", RANDOM.standard_normal((1, 3, 3, 4 * multiplier))),
            constant("b", RANDOM.standard_normal(4 * multiplier)),
            options=window("DepthwiseConv2DOptions", SAME, depthMultiplier=multiplier),
            note=f"times {multiplier}",
        )
        for multiplier in (1, 2)
    ),
    Case(
        "DEPTHWISE_CONV_2D",
        inputs=(T("x", (1, 6, 8, 1)),),
        constants=(
            constant("w", RANDOM.standard_normal((1, 3, 3, 4))),
            constant("b", RANDOM.standard_normal(4)),
        ),
        options=window("DepthwiseConv2DOptions", SAME, depthMultiplier=4),
        note="of one channel",
    ),
    case(
        "FULLY_CONNECTED",
        constant("w", RANDOM.standard_normal((5, 32))),
        BIAS,
        options=options("FullyConnectedOptions", fusedActivationFunction=1),
        note="flattens",
    ),
    case(
        "FULLY_CONNECTED",
        constant("w", RANDOM.standard_normal((5, 4))),
        options=options("FullyConnectedOptions", keepNumDims=True),
        note="keeps dimensions",
    ),
    Case(
        "BATCH_MATMUL",
        inputs=(T("x", (2, 3, 4)), T("y", (2, 4, 5))),
        options=options("BatchMatMulOptions"),
    ),
    case("PAD", constant("p", np.array([[0, 0], [1, 2], [2, 1], [0, 1]], "int32"))),
    case(
        "PADV2",
        constant("p", np.array([[0, 0], [1, 2], [2, 1], [0, 1]], "int32")),
        constant("v", np.float32(2.5)),
    ),
    case(
        "MIRROR_PAD",
        constant("p", np.array([[0, 0], [1, 2], [2, 1], [0, 0]], "int32")),
        options=options("MirrorPadOptions", mode=0),
    ),
    case("RESHAPE", ints("s", 1, -1, 16), options=options("ReshapeOptions", newShape=[1, -1, 16])),
    case("TRANSPOSE", ints("p", 0, 3, 1, 2)),
    case("SLICE", ints("b", 0, 1, 2, 0), ints("n", 1, 4, -1, 3)),
    case(
        "STRIDED_SLICE",
        ints("b", 0, 1, -1, 2),
        ints("e", 1, 5, -8, 3),
        ints("s", 1, 2, -2, 1),
        options=options("StridedSliceOptions", shrinkAxisMask=8, beginMask=0, endMask=0),
    ),
    Case(
        "PACK",
        inputs=(T("x", (2, 3)), T("y", (2, 3))),
        options=options("PackOptions", axis=1, valuesCount=2),
    ),
    case(
        "UNPACK",
        results=("float32",) * 4,
        options=options("UnpackOptions", axis=3, num=4),
    ),
    Case(
        "SPLIT",
        inputs=(IMAGE,),
        constants=(constant("a", np.int32(2)),),
        results=("float32",) * 2,
        options=options("SplitOptions", numSplits=2),
        note="axis first",
    ),
    case(
        "SPLIT_V",
        ints("n", 3, 5),
        constant("a", np.int32(2)),
        results=("float32",) * 2,
        options=options("SplitVOptions", numSplits=2),
    ),
    Case(
        "CONCATENATION",
        inputs=(T("x", (2, 3)), T("y", (2, 5))),
        options=options("ConcatenationOptions", axis=1),
    ),
    case("GATHER", ints("i", 3, 0, 5), options=options("GatherOptions", axis=1)),
    case("GATHER_ND", constant("i", np.array([[0, 1], [0, 5]], "int32"))),
    case("TILE", ints("m", 2, 1, 1, 3)),
    case("EXPAND_DIMS", constant("a", np.int32(1))),
    case("SQUEEZE", options=options("SqueezeOptions", squeezeDims=[0])),
    case("BROADCAST_TO", ints("s", 3, 6, 8, 4)),
    case("REVERSE_V2", ints("a", 2)),
    case("SPACE_TO_DEPTH", options=options("SpaceToDepthOptions", blockSize=2)),
    case("DEPTH_TO_SPACE", options=options("DepthToSpaceOptions", blockSize=2)),
    case("SPACE_TO_BATCH_ND", ints("k", 2, 2), constant("p", np.array([[0, 0], [1, 1]], "int32"))),
    Case(
        "BATCH_TO_SPACE_ND",
        inputs=(T("x", (4, 3, 4, 2)),),
        constants=(ints("k", 2, 2), constant("p", np.array([[0, 1], [1, 0]], "int32"))),
    ),
    *(
        case(
            f"RESIZE_{method}",
            ints("s", 9, 5),
            options=options(f"Resize{table}Options", alignCorners=align, halfPixelCenters=half),
            note=note,
        )
        for method, table in (("BILINEAR", "Bilinear"), ("NEAREST_NEIGHBOR", "NearestNeighbor"))
        for align, half, note in (
            (False, False, "asymmetric"),
            (True, False, "aligned"),
            (False, True, "half pixel"),
        )
    ),
    *(
        case(
            name,
            constant("a", np.int32(3)),
            results=("int64",),
            options=options(table, outputType=4),
        )
        for name, table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions"))
    ),
    case("CAST", results=("int32",), options=options("CastOptions", outDataType=2)),
    case("CUMSUM", constant("a", np.int32(2)), options=options("CumsumOptions")),
    case("TOPK_V2", constant("k", np.int32(2)), results=("float32", "int32")),
    Case(
        "SELECT_V2",
        inputs=(T("c", (2, 3), "bool"), T("x", (2, 3)), T("y", (2, 3))),
        options=options("SelectV2Options"),
    ),
    Case("SELECT", inputs=(T("c", (2, 3), "bool"), T("x", (2, 3)), T("y", (2, 3)))),
    Case(
        "ONE_HOT",
        inputs=(T("x", (3,), "int32"),),
        constants=(
            constant("d", np.int32(4)),
            constant("on", np.float32(2)),
            constant("off", np.float32(-1)),
        ),
        options=options("OneHotOptions", axis=-1),
    ),
    case("QUANTIZE", results=("int8",), options=options("QuantizeOptions")),
)
NOT_HERE = {
    "DENSIFY": "a real model has it: test_real_models",
    "DEQUANTIZE": "test_tflite_quantized",
    "FILL": "its result is a constant: test_tflite_shapes",
    "RANK": "its result is a constant: test_tflite_shapes",
    "SHAPE": "its result is a constant: test_tflite_shapes",
    "TRANSPOSE_CONV": "test_transposed_convolution_computes_what_litert_computes",
}


def build(one: Case) -> bytes:
    results = [
        T(
            f"r{place}",
            (),
            dtype,
            scale=0.05 if dtype == "int8" else None,
            zero=-3 if dtype == "int8" else 0,
        )
        for place, dtype in enumerate(one.results)
    ]
    names = [tensor.name for tensor in (*one.inputs, *one.constants)]
    if one.operator == "SPLIT":
        names.reverse()
    operator = Op(one.operator, tuple(names), tuple(r.name for r in results), one.options)
    return tflite_bytes(
        [*one.inputs, *one.constants, *results],
        [operator],
        [tensor.name for tensor in one.inputs],
        [result.name for result in results],
    )


def feeds_for(inputs: Sequence[T], positive: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    feeds = {}
    for tensor in inputs:
        if tensor.dtype == "bool":
            feeds[tensor.name] = random.integers(0, 2, tensor.shape).astype("bool")
        elif tensor.dtype == "int32":
            feeds[tensor.name] = random.integers(0, 3, tensor.shape).astype("int32")
        else:
            values = random.standard_normal(tensor.shape) * 2
            feeds[tensor.name] = (np.abs(values) + 0.1 if positive else values).astype("float32")
    return feeds


def assert_as_litert(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape
        assert found[name].dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], wanted)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.label)
def test_operator_computes_what_litert_computes(one: Case, tmp_path: Path) -> None:
    source = write_model(tmp_path, build(one))
    assert_as_litert(*run_both(source, feeds_for(one.inputs, one.positive)))


@pytest.mark.parametrize("padding", [SAME, VALID])
def test_transposed_convolution_computes_what_litert_computes(padding: int, tmp_path: Path) -> None:
    extent = 12 if padding == SAME else 13
    content = tflite_bytes(
        [
            ints("s", 1, extent, extent, 5),
            constant("w", RANDOM.standard_normal((5, 3, 3, 4))),
            T("x", (1, 6, 6, 4)),
            T("r", (1, extent, extent, 5)),
        ],
        [
            Op(
                "TRANSPOSE_CONV",
                ("s", "w", "x"),
                ("r",),
                options("TransposeConvOptions", padding=padding, strideH=2, strideW=2),
            )
        ],
        ["x"],
        ["r"],
    )
    source = write_model(tmp_path, content)
    assert_as_litert(*run_both(source, feeds_for([T("x", (1, 6, 6, 4))], False)))


def test_every_operator_on_the_list_is_tested() -> None:
    tested = {one.operator for one in CASES} | set(NOT_HERE)
    assert tested == COMPUTED | MOVED, sorted(tested ^ (COMPUTED | MOVED))
