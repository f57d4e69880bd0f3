"""A case of each TFLite operator that is not elementwise, in float32. tflite_typed.py has the other
types."""

from __future__ import annotations

import numpy as np

from support.tflite_case import IMAGE, Case, case, ints, options, reducer, window
from support.tflite_models import T, constant

RANDOM = np.random.default_rng(7)
SAME, VALID = 0, 1

WEIGHTS = constant("w", RANDOM.standard_normal((5, 3, 3, 4)))
BIAS = constant("b", RANDOM.standard_normal(5))
CASES: tuple[Case, ...] = (
    case("LOG_SOFTMAX"),
    case("L2_NORMALIZATION", options=options("L2NormOptions")),
    case("SOFTMAX", options=options("SoftmaxOptions", beta=1.0)),
    case("SOFTMAX", options=options("SoftmaxOptions", beta=2.5), note="with beta"),
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
        order=("a", "x"),
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
    case(
        "QUANTIZE",
        results=(T("r0", (), "int8", scale=0.05, zero=-3),),
        options=options("QuantizeOptions"),
    ),
    *(
        Case(
            "TRANSPOSE_CONV",
            inputs=(T("x", (1, 6, 6, 4)),),
            constants=(
                ints("s", 1, extent, extent, 5),
                constant("w", RANDOM.standard_normal((5, 3, 3, 4))),
            ),
            options=options("TransposeConvOptions", padding=padding, strideH=2, strideW=2),
            order=("s", "w", "x"),
            note=note,
        )
        for padding, extent, note in ((SAME, 12, "same"), (VALID, 13, "valid"))
    ),
)
FURTHER: tuple[Case, ...] = (
    Case("DEQUANTIZE", inputs=(T("x", (3, 4), "int8", scale=0.1, zero=3),), note="of int8"),
    Case("DEQUANTIZE", inputs=(T("x", (3, 4), "float16"),), note="of float16"),
    Case(
        "BATCH_MATMUL",
        inputs=(T("x", (2, 3, 4)), T("y", (2, 5, 4))),
        options=options("BatchMatMulOptions", adjY=True),
        note="transposed",
    ),
    Case(
        "BATCH_MATMUL",
        inputs=(T("x", (2, 3, 4)),),
        constants=(constant("y", RANDOM.standard_normal((2, 4, 5))),),
        options=options("BatchMatMulOptions"),
        note="with a constant",
    ),
    case(
        "CUMSUM",
        constant("a", np.int32(1)),
        options=options("CumsumOptions", reverse=True, exclusive=True),
        note="reverse",
    ),
    case(
        "GATHER",
        constant("i", np.array([[1, 0]], "int32")),
        options=options("GatherOptions", axis=2, batchDims=1),
        note="with batches",
    ),
    case("GATHER", ints("i", -1, 9), options=options("GatherOptions", axis=1), note="outside"),
    case(
        "MIRROR_PAD",
        constant("p", np.array([[0, 0], [1, 2], [2, 1], [0, 0]], "int32")),
        options=options("MirrorPadOptions", mode=1),
        note="symmetric",
    ),
    case("MEAN", ints("a", 3), options=reducer(True), note="last axis"),
    case("SUM", ints("a", -1), options=reducer(False), note="last axis"),
    case(
        "STRIDED_SLICE",
        ints("b", 0, 1, 0),
        ints("e", 1, 5, 8),
        ints("s", 1, 2, 3),
        options=options(
            "StridedSliceOptions", beginMask=4, endMask=2, ellipsisMask=0, newAxisMask=0
        ),
        note="masks",
    ),
    case(
        "STRIDED_SLICE",
        ints("b", 0, 1),
        ints("e", 1, 3),
        ints("s", 1, 1),
        options=options("StridedSliceOptions", ellipsisMask=1),
        note="ellipsis",
    ),
    case(
        "STRIDED_SLICE",
        ints("b", 0, 0),
        ints("e", 1, 1),
        ints("s", 1, 1),
        options=options("StridedSliceOptions", newAxisMask=2),
        note="new axis",
    ),
    case("PACK", options=options("PackOptions", axis=-1, valuesCount=1), note="last axis"),
    case(
        "CONCATENATION",
        constant("k", RANDOM.standard_normal((1, 6, 8, 2))),
        options=options("ConcatenationOptions", axis=-1),
        note="with a constant",
    ),
    case(
        "ARG_MAX",
        constant("a", np.int32(-1)),
        results=("int32",),
        options=options("ArgMaxOptions", outputType=2),
        note="last axis",
    ),
    case("SHAPE", results=("int32",), options=options("ShapeOptions", outType=2)),
    case("RANK", results=("int32",)),
    Case("FILL", inputs=(T("x", ()),), constants=(ints("s", 2, 3),), order=("s", "x")),
    case(
        "CONV_2D",
        constant("w", RANDOM.standard_normal((8, 3, 3, 2))),
        constant("b", RANDOM.standard_normal(8)),
        options=options("Conv2DOptions", padding=SAME, strideH=1, strideW=1),
        note="in groups",
    ),
    case(
        "CONV_2D",
        constant("w", RANDOM.standard_normal((7, 1, 1, 4))),
        constant("b", RANDOM.standard_normal(7)),
        options=options(
            "Conv2DOptions", padding=SAME, strideH=1, strideW=1, fusedActivationFunction=1
        ),
        note="pointwise with relu",
    ),
    case(
        "DEPTHWISE_CONV_2D",
        constant("w", RANDOM.standard_normal((1, 3, 3, 4))),
        constant("b", RANDOM.standard_normal(4)),
        options=options(
            "DepthwiseConv2DOptions",
            padding=VALID,
            strideH=1,
            strideW=1,
            depthMultiplier=1,
            dilationHFactor=2,
            dilationWFactor=2,
        ),
        note="dilated",
    ),
    Case("ATAN2", inputs=(T("x", (3, 4)), T("y", (3, 4)))),
    Case("BITWISE_XOR", inputs=(T("x", (3, 4)), T("y", (3, 4)))),
    Case("RIGHT_SHIFT", inputs=(T("x", (3, 4)), T("y", (3, 4)))),
    Case(
        "BROADCAST_ARGS",
        inputs=(T("x", (2,), "int32"),),
        constants=(ints("s", 3, 1),),
        results=("int32",),
    ),
    Case(
        "BUCKETIZE",
        inputs=(T("x", (3, 4)),),
        results=("int32",),
        options=options("BucketizeOptions", boundaries=[-1.0, 0.0, 2.0]),
    ),
    Case("COMPLEX_ABS", inputs=(T("x", (3,), "complex64"),)),
    Case("REAL", inputs=(T("x", (3,), "complex64"),)),
    Case("IMAG", inputs=(T("x", (3,), "complex64"),)),
    Case(
        "CONV_3D",
        inputs=(T("x", (1, 5, 6, 7, 3)),),
        constants=(
            constant("w", RANDOM.standard_normal((2, 3, 3, 3, 4))),
            constant("b", RANDOM.standard_normal(4)),
        ),
        options=options("Conv3DOptions", padding=SAME, strideD=1, strideH=2, strideW=1),
    ),
    Case(
        "CONV_3D_TRANSPOSE",
        inputs=(T("x", (1, 3, 4, 4, 4)),),
        constants=(
            ints("s", 1, 3, 8, 8, 2),
            constant("w", RANDOM.standard_normal((2, 3, 3, 2, 4))),
        ),
        order=("s", "w", "x"),
        options=options("Conv3DOptions", padding=SAME, strideD=1, strideH=2, strideW=2),
    ),
    Case("DYNAMIC_UPDATE_SLICE", inputs=(T("x", (5, 6)), T("y", (2, 3)), T("i", (2,), "int32"))),
    Case(
        "EMBEDDING_LOOKUP",
        inputs=(T("i", (3,), "int32"),),
        constants=(constant("w", RANDOM.standard_normal((5, 6))),),
    ),
    case(
        "LOCAL_RESPONSE_NORMALIZATION",
        options=options(
            "LocalResponseNormalizationOptions", radius=2, bias=1.0, alpha=0.5, beta=0.75
        ),
    ),
    Case("MATRIX_DIAG", inputs=(T("x", (2, 3)),)),
    Case("MATRIX_SET_DIAG", inputs=(T("x", (2, 3, 4)), T("y", (2, 3)))),
    Case(
        "NON_MAX_SUPPRESSION_V4",
        inputs=(T("x", (6, 4)), T("y", (6,))),
        constants=(
            constant("n", np.int32(4)),
            constant("u", np.float32(0.5)),
            constant("l", np.float32(0.1)),
        ),
        results=("int32", "int32"),
    ),
    Case(
        "NON_MAX_SUPPRESSION_V5",
        inputs=(T("x", (6, 4)), T("y", (6,))),
        constants=(
            constant("n", np.int32(4)),
            constant("u", np.float32(0.5)),
            constant("l", np.float32(0.1)),
            constant("d", np.float32(0.5)),
        ),
        results=("int32", "float32", "int32"),
    ),
    Case("RANGE", inputs=(T("x", ()), T("y", ()), T("z", ()))),
    Case(
        "REVERSE_SEQUENCE",
        inputs=(T("x", (3, 5, 2)), T("n", (3,), "int32")),
        options=options("ReverseSequenceOptions", seqDim=1, batchDim=0),
    ),
    case("RFFT2D", ints("n", 8, 4), results=("complex64",)),
    Case(
        "SCATTER_ND",
        inputs=(T("x", (2, 3)),),
        constants=(constant("i", np.array([[1], [3]], "int32")), ints("s", 5, 3)),
        order=("i", "x", "s"),
    ),
    Case(
        "SCATTER_ND",
        inputs=(T("x", (3, 3)),),
        constants=(constant("i", np.array([[1], [3], [1]], "int32")), ints("s", 5, 3)),
        order=("i", "x", "s"),
        note="twice into one",
    ),
    Case("SEGMENT_SUM", inputs=(T("x", (4, 3)),), constants=(ints("i", 0, 0, 1, 3),)),
    Case(
        "SPARSE_TO_DENSE",
        inputs=(T("x", (2,)), T("d", ())),
        constants=(constant("i", np.array([[0, 1], [2, 2]], "int32")), ints("s", 3, 4)),
        order=("i", "s", "x", "d"),
    ),
    Case(
        "UNIQUE",
        inputs=(T("x", (6,)),),
        results=("float32", "int32"),
        options=options("UniqueOptions"),
    ),
    *(
        Case(
            f"UNSORTED_SEGMENT_{name}",
            inputs=(T("x", (4, 3)), T("i", (4,), "int32")),
            constants=(constant("n", np.int32(4)),),
        )
        for name in ("MAX", "MIN", "PROD", "SUM")
    ),
    Case("WHERE", inputs=(T("x", (3, 4), "bool"),), results=("int64",)),
    Case(
        "RANDOM_UNIFORM", constants=(ints("s", 2, 3),), inputs=(), options=options("RandomOptions")
    ),
    Case(
        "RANDOM_STANDARD_NORMAL",
        constants=(ints("s", 2, 3),),
        inputs=(),
        options=options("RandomOptions"),
    ),
    Case(
        "MULTINOMIAL",
        inputs=(T("x", (2, 3)),),
        constants=(constant("n", np.int32(4)),),
        results=("int64",),
        options=options("RandomOptions"),
    ),
)
