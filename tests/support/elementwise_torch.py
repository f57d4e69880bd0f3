"""PyTorch's elementwise operators with every type, and a tensor or a number beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from support.elementwise import Verdict, deployed, in_range, judged, values

FLOATS = ("float32", "float16")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
TYPES = (*FLOATS, *INTEGERS, "bool")
CASES_A_MODEL = 32

UNARY: Mapping[str, Callable[[Any], Any]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil"),
            *("cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "frac", "isfinite"),
            *("isinf", "isnan", "isneginf", "isposinf", "lgamma", "log", "log10", "log1p", "log2"),
            *("logical_not", "logit", "nan_to_num", "neg", "reciprocal", "round", "rsqrt"),
            *("sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan"),
            *("tanh", "trunc"),
        )
    },
    **{
        name: getattr(torch.nn.functional, name)
        for name in (
            *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu"),
            *("logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus", "softsign"),
            *("hardshrink", "softshrink", "tanhshrink"),
        )
    },
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "round_decimals": lambda x: torch.round(x, decimals=1),
    "clamp": lambda x: torch.clamp(x, -2, 3),
    "clamp_min": lambda x: torch.clamp(x, min=1),
    "clamp_max": lambda x: torch.clamp(x, max=1),
    "threshold": lambda x: torch.nn.functional.threshold(x, 1, 5),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "where_scalar": lambda x: torch.where(x > 0, x, 1),
    "pow_2": lambda x: x**2,
    "pow_3": lambda x: x**3,
    "pow_half": lambda x: x**0.5,
    "pow_minus_1": lambda x: x**-1.0,
    "2_pow": lambda x: 2**x,
    "rsub": lambda x: 3 - x,
    "rdiv": lambda x: 2.0 / x,
    "any": torch.any,
    "any_dim": lambda x: torch.any(x, 0),
    "all": torch.all,
    "amax": lambda x: torch.amax(x[:3], 0),
    "amin": lambda x: torch.amin(x[:3], (0,), keepdim=True),
    "prod_dim": lambda x: torch.prod(x[10:13], 0),
    "min_dim": lambda x: torch.min(x[:3], 0)[0],
    "min_dim_place": lambda x: torch.min(x[:3], 0)[1],
    "all_dim": lambda x: torch.all(x, 0),
    **{f"to_{name}": lambda x, name=name: x.to(getattr(torch, name)) for name in TYPES},
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or"),
            *("bitwise_right_shift", "bitwise_xor", "copysign", "div", "eq", "floor_divide"),
            *("fmax", "fmin", "fmod", "ge", "gt", "heaviside", "hypot", "ldexp", "le", "logaddexp"),
            *("logaddexp2", "logical_and", "logical_or", "logical_xor", "lt", "maximum", "minimum"),
            *("mul", "ne", "pow", "remainder", "sub", "xlogy"),
        )
    },
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=2),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "lshift": lambda a, b: a << b,
    "rshift": lambda a, b: a >> b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "clamp_tensor": lambda a, b: torch.clamp(a, min=b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=2),
    "prelu": lambda a, b: torch.nn.functional.prelu(a, b[:1]),
    "isclose": lambda a, b: torch.isclose(a, b),
}
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift", "lshift", "rshift")
DIVISIONS = ("div_floor", "div_trunc", "floor_divide", "floordiv", "fmod", "mod", "remainder")


@dataclass(frozen=True)
class Case:
    """One function of one or two operands."""

    name: str
    dtype: str
    form: str = "alone"
    """The form of the second operand: none, a tensor, a number, or the type of another tensor."""

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{self.form}"


def cases() -> Iterator[Case]:
    """Those that PyTorch itself computes."""
    for name in UNARY:
        for dtype in TYPES:
            yield from _possible(Case(name, dtype))
    for name in BINARY:
        for dtype in TYPES:
            for form in ("tensor", "number", "float32" if dtype != "float32" else "int32"):
                yield from _possible(Case(name, dtype, form))


def _possible(case: Case) -> Iterator[Case]:
    if case.name in SHIFTS and case.dtype == "bool":
        return  # PyTorch computes it and cannot export it
    try:
        wanted(case)
    except Exception:  # noqa: BLE001 -- torch has no such kernel, and says so in many ways
        return
    yield case


def operands(case: Case) -> list[np.ndarray]:
    """Edges of the types, without what PyTorch leaves undefined."""
    first = values(case.dtype)
    is_whole = first.dtype.kind in "iu"
    if "pow" in case.name and is_whole:
        first = in_range(first, 0 if case.dtype == "uint8" else -5, 5)
    if case.name.startswith("to_") and case.dtype in FLOATS and case.name[3:] in INTEGERS:
        limits = np.iinfo(case.name[3:])
        first = in_range(first, max(limits.min, -1000), min(limits.max, 1000))
    if "gelu" in case.name or case.name == "pow_half":
        first = in_range(first, 0, 100)  # PyTorch's own kernels differ among themselves beyond
    if case.form == "alone":
        if case.name == "2_pow" and is_whole:
            first = in_range(first, 0, 6)
        return [first]
    second = values(case.dtype if case.form in ("tensor", "number") else case.form, 1)
    if second.dtype.kind in "iu":
        if case.name in DIVISIONS:
            second = in_range(second, 1, 90)
        elif case.name in SHIFTS:
            second = in_range(second, 0, 70)
        elif case.name in ("pow", "ldexp"):
            second = in_range(second, 0, 4)
    return [first, second]


def function(case: Case) -> Callable[..., Any]:
    if case.form == "alone":
        return UNARY[case.name]
    if case.form != "number":
        return BINARY[case.name]
    number: Any = 3 if case.dtype not in FLOATS else 2.5
    return lambda first, second: BINARY[case.name](first, number)


class Many(torch.nn.Module):
    """A function for each case."""

    def __init__(self, chosen: Sequence[Case]) -> None:
        super().__init__()
        self.functions = [(function(case), len(operands(case))) for case in chosen]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results, rest = [], list(tensors)
        for called, count in self.functions:
            results.append(called(*rest[:count]))
            rest = rest[count:]
        return tuple(results)


def run(chosen: Sequence[Case]) -> list[np.ndarray]:
    arrays = [array for case in chosen for array in operands(case)]
    tensors = tuple(torch.from_numpy(array) for array in arrays)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        torch.export.save(torch.export.export(Many(chosen).eval(), tensors), path)
        from edgekit.models.model import open_model, scan_model

        names = [spec.name for spec in scan_model(open_model(path)).inputs]
        found = deployed(path, dict(zip(names, arrays, strict=True)))
    return list(found.values())


def wanted(case: Case) -> np.ndarray:
    """What PyTorch computes."""
    tensors = [torch.from_numpy(array) for array in operands(case)]
    result: torch.Tensor = function(case)(*tensors)
    return result.numpy()


def verdicts(chosen: Sequence[Case]) -> dict[Case, Verdict]:
    """Many cases, as few models as there may be."""
    found: dict[Case, Verdict] = {}
    for start in range(0, len(chosen), CASES_A_MODEL):
        found.update(judged(chosen[start : start + CASES_A_MODEL], run, wanted))
    return found
