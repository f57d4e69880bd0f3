"""Decompositions of operators that compute element by element."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from edgekit.models.torch.decomposing import (
    DECOMPOSITIONS,
    Function,
    as_type,
    aten,
    decomposes,
    in_one_type,
    is_half,
)

_LARGE, _FRACTIONS = 4.0, 40


def _is_negative(value: Tensor) -> Tensor:
    """Tell numbers with a minus sign, -0.0 too."""
    return (value < 0) | ((value == 0) & (1 / value < 0))


def _are_truths(*values: Any) -> bool:
    return all(
        value.dtype == torch.bool if isinstance(value, Tensor) else isinstance(value, bool)
        for value in values
    )


def _scaled(factor: float) -> Function:
    """Return a decomposition with a factor of all digits, where the exporter has 32 bits."""
    return lambda value: value * factor


decomposes(aten.deg2rad)(_scaled(math.pi / 180))
decomposes(aten.rad2deg)(_scaled(180 / math.pi))


def _of_truths(function: Function) -> Function:
    """Return a decomposition of an operator that ONNX has for numbers only."""

    def compute(first: Any, second: Any, *, alpha: Any = 1) -> Any:
        if not _are_truths(first, second):
            return NotImplemented
        first, second = in_one_type(first, second)
        return function(first, second & bool(alpha))

    return compute


for _operator in (aten.add, aten.maximum, aten.clamp_min):
    decomposes(_operator)(_of_truths(torch.logical_or))
for _operator in (aten.mul, aten.minimum, aten.clamp_max):
    decomposes(_operator)(_of_truths(torch.logical_and))


@decomposes(aten.clamp)
def _clamp(value: Any, low: Any = None, high: Any = None, **named: Any) -> Any:
    low, high = named.get("min", low), named.get("max", high)
    if not _are_truths(value, *(limit for limit in (low, high) if limit is not None)):
        # The exporter takes the largest number for a limit that is not there: infinity is lost.
        if high is None:
            return torch.maximum(*in_one_type(value, low))
        return torch.minimum(*in_one_type(value, high)) if low is None else NotImplemented
    value = value if low is None else torch.logical_or(*in_one_type(value, low))
    return value if high is None else torch.logical_and(*in_one_type(value, high))


@decomposes(aten.addr)
def _addr(added: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = first.unsqueeze(-1) * second * alpha
    kind = torch.result_type(added, first)
    return (product if beta == 0 else product + added * beta).to(kind)


@decomposes(aten.addmm)
def _addmm(added: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Scale in the type of the result. The factors of ONNX's operator are floats of 32 bits."""
    if beta == 1 and alpha == 1:
        return NotImplemented
    product = torch.mm(first, second) * alpha
    return product if beta == 0 else product + added * beta


@decomposes(aten.copysign)
def _copysign(first: Any, second: Any) -> Any:
    kind = torch.result_type(first, second)
    kind = kind if kind.is_floating_point else torch.get_default_dtype()
    size, sign = as_type(first, kind).abs(), as_type(second, kind)
    return torch.where(_is_negative(sign), -size, size)


@decomposes(aten.fmax)
def _fmax(first: Tensor, second: Tensor) -> Any:
    first, second = in_one_type(first, second)
    larger = torch.maximum(first, second)
    if not first.dtype.is_floating_point:
        return larger
    return torch.where(first.isnan(), second, torch.where(second.isnan(), first, larger))


@decomposes(aten.fmin)
def _fmin(first: Tensor, second: Tensor) -> Any:
    first, second = in_one_type(first, second)
    smaller = torch.minimum(first, second)
    if not first.dtype.is_floating_point:
        return smaller
    return torch.where(first.isnan(), second, torch.where(second.isnan(), first, smaller))


@decomposes(aten.hypot)
def _hypot(first: Tensor, second: Tensor) -> Any:
    kind = torch.result_type(first, second)
    squares = [value.double() * value.double() for value in (first, second)]
    infinite = first.isinf() | second.isinf()
    return torch.where(infinite, math.inf, (squares[0] + squares[1]).sqrt()).to(kind)


@decomposes(aten.remainder)
def _remainder(first: Any, second: Any) -> Any:
    """Compute the remainder with the sign of the divisor, exactly."""
    kind = torch.result_type(first, second)
    if not kind.is_floating_point:
        return NotImplemented
    dividend, divisor = in_one_type(first, second, wide=True)
    rest = torch.fmod(dividend, divisor)
    differs = (rest != 0) & ((rest < 0) != (divisor < 0))
    return torch.where(differs, rest + divisor, rest).to(kind)


@decomposes(aten.floor_divide)
def _floor_divide(first: Any, second: Any) -> Any:
    """Divide floats from the exact remainder, so that 1.0 // 0.1 is 9."""
    kind = torch.result_type(first, second)
    if not kind.is_floating_point:
        if all(one.dtype == kind for one in (first, second) if isinstance(one, Tensor)):
            return NotImplemented
        return torch.floor_divide(*in_one_type(first, second))
    dividend, divisor = in_one_type(first, second, wide=True)
    rest = torch.fmod(dividend, divisor)
    quotient = (dividend - rest) / divisor
    goes_down = (rest != 0) & ((rest < 0) != (divisor < 0))
    quotient = torch.where(goes_down, quotient - 1, quotient)
    down = quotient.floor()
    whole = torch.where(quotient - down > 0.5, down + 1, down)
    return torch.where(divisor == 0, dividend / divisor, whole).to(kind)


def _rounded_division(first: Any, second: Any, *, rounding_mode: str | None = None) -> Any:
    """Divide whole numbers as such. The exporter divides them as floats of 32 bits."""
    if torch.result_type(first, second).is_floating_point:
        return _floor_divide(first, second) if rounding_mode == "floor" else NotImplemented
    if rounding_mode is None:
        return NotImplemented
    first, second = in_one_type(first, second)
    if rounding_mode == "trunc":
        first = first - torch.fmod(first, second)
    return torch.floor_divide(first, second)


DECOMPOSITIONS[aten.div.Tensor_mode] = _rounded_division
DECOMPOSITIONS[aten.div.Scalar_mode] = _rounded_division


@decomposes(aten.pow)
def _power(base: Any, exponent: Any) -> Any:
    """Compute in the type of the result, such as whole numbers for powers of truths."""
    kind = torch.result_type(base, exponent)
    is_other = isinstance(base, Tensor) and base.dtype != kind
    return torch.pow(base.to(kind), exponent) if is_other else NotImplemented


def _in_float32(function: Function) -> Function:
    """Return a decomposition that computes half precision in float32."""

    def compute(value: Tensor, /, *arguments: Any, **options: Any) -> Any:
        operands = [one for one in (value, *arguments) if isinstance(one, Tensor)]
        if not all(is_half(one) for one in operands):
            return NotImplemented
        wide = [one.float() if is_half(one) else one for one in (value, *arguments)]
        return function(*wide, **options).to(value.dtype)

    return compute


decomposes(aten.lerp)(_in_float32(aten.lerp))
decomposes(aten.addcdiv)(_in_float32(aten.addcdiv))


@decomposes(aten.heaviside)
def _heaviside(value: Tensor, at_zero: Tensor) -> Any:
    """Compute the step; that of NaN is 0, as PyTorch has it."""
    return torch.where(value == 0, at_zero, (value > 0).to(value.dtype))


@decomposes(aten.xlogy)
def _xlogy(factor: Any, value: Any) -> Any:
    kind = torch.result_type(factor, value)
    kind = kind if kind.is_floating_point else torch.get_default_dtype()
    factor, value = as_type(factor, kind), as_type(value, kind)
    product = torch.where(factor == 0, 0.0, factor * torch.log(value))
    return torch.where(value.isnan(), value, product)


@decomposes(aten.neg)
def _negative(value: Tensor) -> Any:
    """Wrap around where there is no sign."""
    return value.bitwise_not() + 1 if value.dtype == torch.uint8 else NotImplemented


@decomposes(aten.linalg_vector_norm)
def _vector_norm(
    value: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """Add half precision in float32, and name all axes. The exporter forgets to keep them."""
    axes = list(range(value.ndim)) if dim is None else dim
    kind = dtype or value.dtype
    if axes == dim and not is_half(value) and kind == value.dtype:
        return NotImplemented
    if not value.ndim:
        return value.abs().to(kind) if order != 0 else (value != 0).to(kind)
    wide = value.float() if kind in (torch.float16, torch.bfloat16) else value.to(kind)
    return aten.linalg_vector_norm(wide, order, axes, keepdim).to(kind)


def _log_of_sum(exponent: Function, factor: float) -> Function:
    """Return a decomposition that takes the larger operand out, so that nothing overflows."""

    def compute(first: Tensor, second: Tensor) -> Any:
        kind = torch.result_type(first, second)
        first, second = in_one_type(first, second, wide=True)
        larger, apart = torch.maximum(first, second), (first - second).abs()
        found = larger + torch.log1p(exponent(-apart)) * factor
        return torch.where(apart.isnan(), larger, found).to(kind)

    return compute


decomposes(aten.logaddexp)(_log_of_sum(torch.exp, 1.0))
decomposes(aten.logaddexp2)(_log_of_sum(torch.exp2, 1 / math.log(2)))


@decomposes(aten.log_sigmoid)
def _log_sigmoid(value: Tensor) -> Any:
    wide = value.float() if is_half(value) else value
    result = wide.clamp(max=0) - torch.log1p(torch.exp(-wide.abs()))
    return result.to(value.dtype)


@decomposes(aten.special_erfcx)
def _erfcx(value: Tensor) -> Any:
    """Compute large ones as a continued fraction. exp(x * x) * erfc(x) overflows."""
    kind = torch.result_type(value, 1.0)
    value = as_type(value, torch.float64 if kind == torch.float64 else torch.float32)
    tail = large = value.clamp(min=_LARGE)
    for step in range(_FRACTIONS, 0, -1):
        tail = large + step / 2 / tail
    small = value.clamp(max=_LARGE)
    found = torch.exp(small * small) * torch.erfc(small)
    return torch.where(value > _LARGE, 1 / (math.sqrt(math.pi) * tail), found).to(kind)


for _name in ("divide", "true_divide", "multiply", "subtract", "greater", "less"):
    _plain = {"greater": "gt", "less": "lt", "true_divide": "div"}.get(_name, _name[:3])
    decomposes(getattr(aten, _name))(getattr(aten, _plain))
for _name in ("greater_equal", "less_equal"):
    decomposes(getattr(aten, _name))(getattr(aten, _name[0] + "e"))


@decomposes(aten.sinc)
def _sinc(value: Tensor) -> Any:
    wide = value.to(in_one_type(value, 1.0, wide=True)[0].dtype) * math.pi
    kind = torch.result_type(value, 1.0)
    return torch.where(wide == 0, 1.0, wide.sin() / wide).to(kind)


@decomposes(aten.sign)
def _sign(value: Tensor) -> Any:
    """Return 0 for NaN. ONNX's operator returns NaN."""
    if not value.dtype.is_floating_point:
        return NotImplemented
    return (value > 0).to(value.dtype) - (value < 0).to(value.dtype)


DECOMPOSITIONS[aten.sgn.default] = lambda value: (
    NotImplemented if value.is_complex() else torch.sign(value)
)


@decomposes(aten.angle)
def _angle(value: Tensor) -> Any:
    if value.dtype.is_floating_point or value.is_complex():
        return NotImplemented
    return torch.where(value < 0, math.pi, 0.0).to(torch.get_default_dtype())


@decomposes(aten.signbit)
def _signbit(value: Tensor) -> Any:
    if value.dtype.is_floating_point:
        return _is_negative(value)
    return torch.zeros_like(value) if value.dtype == torch.bool else value < 0


@decomposes(aten.isfinite)
def _isfinite(value: Tensor) -> Any:
    if not value.dtype.is_floating_point:
        return torch.ones_like(value, dtype=torch.bool)
    return value.abs() < math.inf


@decomposes(aten.isnan)
def _isnan(value: Tensor) -> Any:
    if value.dtype.is_floating_point or value.is_complex():
        return NotImplemented
    return torch.zeros_like(value, dtype=torch.bool)


@decomposes(aten.all)
def _all(value: Tensor, *where: Any) -> Any:
    """Return a byte for bytes, as PyTorch does."""
    return torch.all(value != 0, *where).byte() if value.dtype == torch.uint8 else NotImplemented


@decomposes(aten.any)
def _any(value: Tensor, *where: Any) -> Any:
    return torch.any(value != 0, *where).byte() if value.dtype == torch.uint8 else NotImplemented


@decomposes(aten.isclose)
def _isclose(
    first: Tensor,
    second: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Any:
    near = first == second
    if equal_nan and first.dtype.is_floating_point:
        near = near | (first.isnan() & second.isnan())
    if not rtol and not atol:
        return near
    if first.dtype == torch.bool:
        return near
    kind = first.dtype if first.dtype.is_floating_point else torch.get_default_dtype()
    left, right = first.to(kind), second.to(kind)
    distance = (left - right).abs()
    return near | (distance.isfinite() & (distance <= atol + (rtol * right).abs()))


def _shifted(function: Function) -> Function:
    """Return a decomposition that shifts bytes in a wider type. ONNX shifts only what has no sign,
    and the exporter takes bytes for ones with a sign."""

    def shift(first: Any, second: Any) -> Any:
        if torch.result_type(first, second) != torch.uint8:
            return NotImplemented
        return function(*(as_type(value, torch.int32) for value in (first, second))).byte()

    return shift


decomposes(aten.bitwise_left_shift)(_shifted(torch.bitwise_left_shift))
decomposes(aten.bitwise_right_shift)(_shifted(torch.bitwise_right_shift))
# The exporter has the functions and not these operators.
decomposes(aten.__lshift__)(torch.bitwise_left_shift)
decomposes(aten.__rshift__)(torch.bitwise_right_shift)
