"""The cases of TFLite's operators in other types: of quantised numbers with weights as TFLite
prescribes them, of whole numbers, and with weights in float16 or int8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from edgekit.models.tflite.operators import MOVED
from support.tflite_case import Case
from support.tflite_models import Op, T
from support.tflite_operators import CASES, FURTHER

PRODUCTS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
"""Operators with weights, and the axis of their channels."""
DYNAMIC = (*PRODUCTS, "BATCH_MATMUL", "CONV_3D", "EMBEDDING_LOOKUP")
SAME_SCALE = (
    *("AVERAGE_POOL_2D", "CONCATENATION", "CUMSUM", "MAXIMUM", "MAX_POOL_2D", "MINIMUM"),
    *("REDUCE_MAX", "REDUCE_MIN", "RELU_0_TO_1", "RESIZE_BILINEAR", "SELECT", "SELECT_V2"),
    *("TOPK_V2",),
)
PRESCRIBED: Mapping[str, Mapping[str, tuple[float, int]]] = {
    "LOGISTIC": {"int8": (2**-8, -128), "uint8": (2**-8, 0), "int16": (2**-15, 0)},
    "SOFTMAX": {"int8": (2**-8, -128), "uint8": (2**-8, 0), "int16": (2**-15, 0)},
    "TANH": {"int8": (2**-7, 0), "uint8": (2**-7, 128), "int16": (2**-15, 0)},
    "L2_NORMALIZATION": {"int8": (2**-7, 0), "uint8": (2**-7, 128)},
    "LOG_SOFTMAX": {"int8": (2**-4, 127), "uint8": (2**-4, 255)},
}
"""The quantisation of the results that TFLite prescribes."""
TYPED = (
    *("float32", "qint8", "quint8", "qint16", "int8", "uint8", "int16", "int32", "int64", "bool"),
    *("float16", "float16 weights", "int8 weights", "int8 weights, asymmetric"),
)
_GIVEN = {"int8": (0.037, -11), "uint8": (0.037, 117), "int16": (0.0009, 0)}
_MADE = {"int8": (0.071, 5), "uint8": (0.071, 133), "int16": (0.0017, 0)}


def cases() -> Iterator[Case]:
    """Yield every case in every type, also those that LiteRT does not compute."""
    for one in (*CASES, *FURTHER):
        for dtype in TYPED:
            found = typed(one, dtype)
            if found is not None:
                yield found


def typed(case: Case, dtype: str) -> Case | None:
    """Return a case of float32 in another type; None if it says nothing about that type."""
    if dtype == "float32":
        return case
    if dtype.endswith("weights") or "weights," in dtype:
        return _with_weights(case, dtype)
    if not any(tensor.dtype == "float32" for tensor in case.inputs):
        return None
    if dtype.startswith("q"):
        return _quantised(case, dtype)
    if dtype in ("int8", "uint8", "int16") and case.operator not in MOVED:
        return None  # LiteRT takes them for quantised, and crashes where there is no scale
    return replace(
        case,
        dtype=dtype,
        inputs=tuple(_as_plain(tensor, dtype) for tensor in case.inputs),
        constants=tuple(_as_plain(tensor, dtype) for tensor in case.constants),
        results=tuple(dtype if each == "float32" else each for each in case.results),
    )


def _as_plain(tensor: T, dtype: str) -> T:
    if tensor.dtype != "float32":
        return tensor
    if tensor.data is None:
        return replace(tensor, dtype=dtype)
    return replace(tensor, dtype=dtype, data=np.abs(tensor.data * 3).astype(dtype))


def _with_weights(case: Case, dtype: str) -> Case | None:
    floats = [tensor for tensor in case.constants if tensor.dtype == "float32"]
    if not floats or (dtype.startswith("int8") and case.operator not in DYNAMIC):
        return None
    if dtype == "float16 weights":
        stored = [
            replace(tensor, name=f"{tensor.name}h", dtype="float16", data=tensor.data.astype("f2"))
            for tensor in floats
        ]
        widened = [replace(tensor, data=None) for tensor in floats]
        others = [tensor for tensor in case.constants if tensor.dtype != "float32"]
        before = tuple(
            Op("DEQUANTIZE", (half.name,), (whole.name,))
            for half, whole in zip(stored, widened, strict=True)
        )
        order = case.order or tuple(t.name for t in (*case.inputs, *case.constants))
        return replace(
            case,
            dtype=dtype,
            constants=(*stored, *widened, *others),
            before=before,
            order=order,
        )
    options = dict(case.options)
    if "asymmetric" in dtype:
        if "asymmetricQuantizeInputs" not in _FIELDS.get(options.get("table"), ()):
            return None
        options["asymmetricQuantizeInputs"] = True
    weights = floats[0]
    axis = PRODUCTS.get(case.operator)
    found = _stored_weights(weights, "int8", axis)
    constants = tuple(found if tensor is weights else tensor for tensor in case.constants)
    return replace(case, dtype=dtype, constants=constants, options=options)


_FIELDS = {
    "FullyConnectedOptions": ("asymmetricQuantizeInputs",),
    "BatchMatMulOptions": ("asymmetricQuantizeInputs",),
}


def _stored_weights(weights: T, dtype: str, axis: int | None) -> T:
    random = np.random.default_rng(weights.data.size)
    data = random.integers(-127, 128, weights.shape)
    if dtype == "uint8":
        return replace(
            weights, dtype="uint8", data=(data + 128).astype("u1"), scale=0.011, zero=128
        )
    if axis is None:
        return replace(weights, dtype="int8", data=data.astype("i1"), scale=0.011)
    scales = tuple(random.uniform(0.005, 0.03, weights.shape[axis]).tolist())
    return replace(weights, dtype="int8", data=data.astype("i1"), scale=scales, axis=axis)


def _quantised(case: Case, dtype: str) -> Case:
    stored = dtype[1:]
    scale, zero = _GIVEN[stored]
    inputs = tuple(
        replace(tensor, dtype=stored, scale=scale, zero=zero)
        if tensor.dtype == "float32"
        else tensor
        for tensor in case.inputs
    )
    axis = PRODUCTS.get(case.operator)
    if stored == "uint8" or case.operator == "FULLY_CONNECTED":
        axis = None  # one scale for all
    constants: list[T] = []
    floats = 0
    for tensor in case.constants:
        if tensor.dtype != "float32":
            constants.append(tensor)
            continue
        floats += 1
        if case.operator not in PRODUCTS:
            data = np.clip(np.round(tensor.data / scale) + zero, *_limits(stored)).astype(stored)
            constants.append(replace(tensor, dtype=stored, data=data, scale=scale, zero=zero))
        elif floats == 1:
            weights = _stored_weights(tensor, "uint8" if stored == "uint8" else "int8", axis)
            constants.append(weights)
        else:
            scales = tuple(float(each) * scale for each in np.atleast_1d(weights.scale))
            wide = "int64" if stored == "int16" else "int32"
            sums = np.random.default_rng(3).integers(-3000, 3000, tensor.shape).astype(wide)
            constants.append(replace(tensor, dtype=wide, data=sums, scale=scales))
    made = PRESCRIBED.get(case.operator, {}).get(stored, _MADE[stored])
    if case.operator in MOVED or case.operator in SAME_SCALE:
        made = scale, zero
    results = tuple(
        T(f"r{place}", (), stored, scale=made[0], zero=made[1]) if each == "float32" else each
        for place, each in enumerate(case.results)
    )
    return replace(case, dtype=dtype, inputs=inputs, constants=tuple(constants), results=results)


def _limits(stored: str) -> tuple[int, int]:
    limits = np.iinfo(stored)
    return int(limits.min), int(limits.max)
