"""TFLite's elementwise operators with every type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.elementwise import in_range, values
from support.tflite_models import TYPES, Described, Op, T, constant

PLAIN = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
QUANTIZED = ("qint8", "quint8", "qint16")
_FUSED = {"": 0, "relu": 1, "relu_n1_to_1": 2, "relu6": 3}

UNARY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{
        name.lower(): (name, {})
        for name in (
            *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGICAL_NOT"),
            *("LOGISTIC", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND"),
            *("RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH", "ZEROS_LIKE"),
            *("DEQUANTIZE", "QUANTIZE"),
        )
    },
    "gelu": ("GELU", {"table": "GeluOptions"}),
    "gelu_tanh": ("GELU", {"table": "GeluOptions", "approximate": True}),
    "leaky_relu": ("LEAKY_RELU", {"table": "LeakyReluOptions", "alpha": 0.3}),
    **{
        f"cast_{name}": (
            "CAST",
            {"table": "CastOptions", "inDataType": None, "outDataType": TYPES[name]},
        )
        for name in PLAIN
    },
}
BINARY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{
        "_".join((name.lower(), *filter(None, [fused]))): (
            name,
            {"table": f"{name.title()}Options", "fusedActivationFunction": number},
        )
        for name in ("ADD", "SUB", "MUL", "DIV")
        for fused, number in _FUSED.items()
    },
    **{
        name.lower(): (name, {})
        for name in (
            *("ADD_N", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS"),
            *("LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "NOT_EQUAL"),
            *("POW", "PRELU", "SELECT", "SELECT_V2", "SQUARED_DIFFERENCE"),
        )
    },
}
_LOGICAL = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
_DIVISIONS = ("DIV", "FLOOR_DIV", "FLOOR_MOD")
_OF_SMALL_INTEGERS = ("CAST", "FLOOR_DIV", "FLOOR_MOD", "SELECT", "SELECT_V2", "ZEROS_LIKE")
_SAME_SCALE = ("MAXIMUM", "MINIMUM", "SELECT", "SELECT_V2")
_PRESCRIBED: Mapping[str, Mapping[str, tuple[float, int]]] = {
    "LOGISTIC": {"int8": (2**-8, -128), "uint8": (2**-8, 0), "int16": (2**-15, 0)},
    "TANH": {"int8": (2**-7, 0), "uint8": (2**-7, 128), "int16": (2**-15, 0)},
}
"""The quantisation of the results that TFLite prescribes."""


@dataclass(frozen=True)
class Case:
    """One operator with one type; `q` before it stands for a quantised one."""

    name: str
    dtype: str
    form: str = "alone"
    """The second operand: alone, a tensor, a constant, or a tensor that is broadcast."""

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{self.form}"

    @property
    def operator(self) -> str:
        return (UNARY.get(self.name) or BINARY[self.name])[0]

    @property
    def exactness(self) -> float:
        return 1

    def described(self, prefix: str) -> Described:
        return _described(self, prefix)

    @property
    def stored(self) -> str:
        return self.dtype.removeprefix("q")


def candidates() -> Iterator[Case]:
    """Yield every operator with every type, also those that LiteRT does not compute."""
    for dtype in (*PLAIN, *QUANTIZED):
        for name in UNARY:
            yield Case(name, dtype)
        for name in BINARY:
            for form in ("tensor", "constant", "broadcast"):
                yield Case(name, dtype, form)


def cases() -> Iterator[Case]:
    """Yield the cases, without those on which LiteRT itself would crash."""
    for case in candidates():
        if case.dtype not in ("int8", "uint8", "int16") or case.operator in _OF_SMALL_INTEGERS:
            yield case  # LiteRT takes small integers for quantised; some have no scale


def operands(case: Case) -> list[np.ndarray]:
    """Return edges of the types, without what LiteRT leaves undefined."""
    first = values(case.stored)
    is_float, is_whole = first.dtype.kind == "f", first.dtype.kind in "iu"
    if case.dtype in QUANTIZED:
        limits = np.iinfo(case.stored)
        first = np.linspace(limits.min, limits.max, 331).round().astype(case.stored)
    target = case.name.removeprefix("cast_")
    if target != case.name and is_float and target not in ("float32", "float16", "bool"):
        limits = np.iinfo(target)
        first = in_range(first, max(limits.min, -1000), min(limits.max, 1000))
    if case.name == "quantize" or "gelu" in case.name:
        # LiteRT casts infinity to int, and its GELU of small numbers loses its digits.
        first = in_range(first, 0 if "gelu" in case.name else -100, 100)
    if case.form == "alone":
        return [first]
    second = values(case.stored, 1)
    if case.dtype in QUANTIZED:
        second = np.random.default_rng(5).permutation(first)
    if case.operator in _DIVISIONS and is_whole and case.dtype not in QUANTIZED:
        second = in_range(second, 1, 90)
    if case.operator == "POW" and is_whole:
        first, second = in_range(first, -5, 5), in_range(second, 0, 4)
    if "relu" in case.name and is_whole and case.dtype not in QUANTIZED:
        first, second = in_range(first, -1000, 1000), in_range(second, -1000, 1000)
    if case.form == "broadcast":
        second = second[3:4]
    if case.operator == "PRELU":
        first, second = first.reshape(1, 1, -1), second.reshape(1, 1, -1)
    return [first, second]


def _described(case: Case, prefix: str) -> Described:
    operator, options = UNARY.get(case.name) or BINARY[case.name]
    options = dict(options)
    if "inDataType" in options:
        options["inDataType"] = TYPES[case.stored]
    dice = np.random.default_rng(len(str(case)))
    limits = np.iinfo(case.stored) if case.dtype in QUANTIZED else None

    def quantised() -> dict[str, Any]:
        if limits is None:
            return {}
        zero = 0 if case.stored == "int16" else int(dice.integers(limits.min, limits.max))
        top = 5e-4 if case.stored == "int16" else 0.1
        return {"scale": float(np.float32(dice.uniform(top / 10, top))), "zero": zero}

    shared = quantised() if operator in _SAME_SCALE else None
    tensors = []
    for place, array in enumerate(operands(case)):
        data = array if place == 1 and case.form == "constant" else None
        name, more = f"{prefix}_i{place}", quantised() if shared is None else shared
        tensors.append(T(name, array.shape, case.stored, data, **more))
    inputs = [tensor.name for tensor in tensors]
    given = [tensor.name for tensor in tensors if tensor.data is None]
    if operator in ("SELECT", "SELECT_V2"):
        choice = np.arange(operands(case)[0].size) % 3 > 0
        tensors.append(constant(f"{prefix}_c", choice))
        inputs.insert(0, tensors[-1].name)
    result, more = case.stored, quantised() if shared is None else shared
    if limits is not None and operator in _PRESCRIBED:
        scale, zero = _PRESCRIBED[operator][case.stored]
        more = {"scale": scale, "zero": zero}
    if operator in _LOGICAL:
        result, more = "bool", {}
    elif operator == "CAST":
        result, more = case.name.removeprefix("cast_"), {}
    elif operator == "DEQUANTIZE":
        result, more = "float32", {}
    elif operator == "QUANTIZE" and limits is None:
        result, more = "int8", {"scale": 0.05, "zero": -3}
    shape = np.broadcast_shapes(*(array.shape for array in operands(case)))
    tensors.append(T(f"{prefix}_r", shape, result, None, **more))
    feeds = dict(zip(given, operands(case), strict=False))
    made = Op(operator, tuple(inputs), (f"{prefix}_r",), options)
    return Described(tensors, [made], feeds, [f"{prefix}_r"])
