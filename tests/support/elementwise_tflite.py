"""TFLite's elementwise operators with every type, in a library and as portable C."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.models.comparison import IN_16_BITS, SHARE_OFF_BY_A_STEP
from edgekit.models.model import import_model, open_model
from edgekit.models.oracle import oracle_for
from support.elementwise import Verdict, deployed, in_range, judged, values
from support.tflite_models import TYPES, Op, T, constant, tflite_bytes

PLAIN = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
QUANTIZED = ("qint8", "quint8", "qint16")
CASES_A_MODEL = 24
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
_STOPPED = ("ADD", "ADD_N", "SUB", "MUL", "DIV")
"""Operators whose reference kernels give the largest number for infinity."""
_SAME_SCALE = ("MAXIMUM", "MINIMUM")
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


def possible(chosen: Iterable[Case]) -> list[Case]:
    """Return those that LiteRT itself computes."""
    return [case for one in chosen for case in _possible(one)]


def _possible(case: Case) -> Iterator[Case]:
    if case.dtype in ("int8", "uint8", "int16") and case.operator not in _OF_SMALL_INTEGERS:
        return  # LiteRT takes them for quantised, and crashes where there is no scale
    try:
        wanted(case)
    except (ModelError, ValueError):  # LiteRT has no such kernel
        return
    yield case


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


def _described(case: Case, prefix: str) -> tuple[list[T], Op, list[str]]:
    """Return the tensors of a case, its operator and the names of its inputs."""
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
    return tensors, Op(operator, tuple(inputs), (f"{prefix}_r",), options), given


def _model(chosen: Sequence[Case]) -> tuple[bytes, dict[str, np.ndarray]]:
    tensors, operators, feeds = [], [], {}
    for number, case in enumerate(chosen):
        mine, operator, given = _described(case, f"c{number}")
        tensors += mine
        operators.append(operator)
        feeds.update(zip(given, operands(case), strict=False))
    results = [operator.outputs[0] for operator in operators]
    return tflite_bytes(tensors, operators, list(feeds), results), feeds


def in_library(chosen: Sequence[Case]) -> list[np.ndarray]:
    content, feeds = _model(chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        found = deployed(path, feeds)
    return [found[f"c{number}_r"] for number in range(len(chosen))]


def in_c(chosen: Sequence[Case]) -> list[np.ndarray]:
    """Compile portable C for this host, with undefined behaviour caught."""
    from graphs.c_library import run_tree

    from edgekit.aot.compile import compile_tree
    from edgekit.aot.generators import portable_generators
    from edgekit.aot.job import TreeJob
    from edgekit.aot.tree import Origin
    from edgekit.aot.write import write_tree
    from support.c_builds import CORTEX_M4

    content, feeds = _model(chosen)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "model.tflite").write_bytes(content)
        model = import_model(open_model(folder / "model.tflite"))
        origin = Origin("net", "model.tflite", "0", "here", CORTEX_M4.name)
        compiled = compile_tree(model, TreeJob("net", origin, CORTEX_M4), portable_generators())
        write_tree(compiled.plan, folder)
        found = run_tree(compiled.plan, folder, feeds)
    return [found[f"c{number}_r"] for number in range(len(chosen))]


@cache
def wanted(case: Case) -> np.ndarray:
    """Return what LiteRT's reference kernel computes."""
    content, feeds = _model([case])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        found = oracle_for(open_model(path)).run(feeds)["c0_r"]
    if case.operator in _STOPPED and found.dtype.kind == "f":
        stopped = np.abs(found) == np.finfo(found.dtype).max
        found = np.where(stopped, np.copysign(np.inf, found), found).astype(found.dtype)
    return found


def verdicts(
    chosen: Sequence[Case], run: Callable[[Sequence[Case]], list[np.ndarray]]
) -> dict[Case, Verdict]:
    """Judge many cases in as few models as possible, without those that no importer takes."""
    found: dict[Case, Verdict] = {}
    for case in chosen:
        reason = _refusal(case)
        if reason:
            found[case] = Verdict("refused", reason)
    taken = [case for case in chosen if case not in found]

    def settled(cases: Sequence[Case]) -> list[np.ndarray]:
        return [_settled(case, array) for case, array in zip(cases, run(cases), strict=True)]

    for start in range(0, len(taken), CASES_A_MODEL):
        found.update(judged(taken[start : start + CASES_A_MODEL], settled, wanted))
    return found


def _settled(case: Case, found: np.ndarray) -> np.ndarray:
    """Return LiteRT's numbers where uint8 and int16 differ by what docs/verify.md allows."""
    right = wanted(case)
    if (
        case.dtype not in ("quint8", "qint16")
        or found.dtype != right.dtype
        or found.shape != right.shape
    ):
        return found
    off = np.abs(found.astype(int) - right.astype(int))
    if case.dtype == "qint16":
        return right if off.max() <= IN_16_BITS.allowed else found
    return right if off.max() <= 1 and (off > 0).mean() <= SHARE_OFF_BY_A_STEP else found


@cache
def _refusal(case: Case) -> str:
    """Return why a model of this case can't be imported; empty if it can."""
    content, _ = _model([case])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        try:
            import_model(open_model(path))
        except (ModelError, UnsupportedModelError) as error:
            return " ".join((error.message, *error.details))
    return ""


WAYS = {"library": partial(verdicts, run=in_library), "C": partial(verdicts, run=in_c)}
