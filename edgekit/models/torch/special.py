"""Decompositions of special functions: sums and integrals that converge, in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from edgekit.models.torch.decomposing import Function, as_type, aten, decomposes

prims = torch.ops.prims

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""The Bernoulli numbers of even places, from the second."""
_SHIFT = 12
"""How far an asymptotic series is moved away from zero."""
_MOST_NEGATIVE = 64
_NEWTON_STEPS = 6


def _exactly(function: Function) -> Function:
    """Return a decomposition that computes in float64 and returns PyTorch's type."""

    def compute(*values: Any) -> Any:
        kind = torch.result_type(values[0], 1.0) if len(values) == 1 else None
        if kind is None:
            kind = torch.result_type(*values)
            kind = kind if kind.is_floating_point else torch.get_default_dtype()
        return function(*(as_type(value, torch.float64) for value in values)).to(kind)

    return compute


def _series(value: Tensor, factors: list[float]) -> Tensor:
    """Return the polynomial with these factors, from the constant one."""
    total = torch.full_like(value, factors[-1])
    for factor in reversed(factors[:-1]):
        total = total * value + factor
    return total


def _asymptotic(order: int, sign: int) -> list[float]:
    """Return the factors of 1/x of a modified Bessel function for large x."""
    factors = [1.0]
    for place in range(1, 24):
        step = (4 * order**2 - (2 * place - 1) ** 2) / (8 * place)
        factors.append(factors[-1] * step * sign)
    return factors


def _scaled_i(value: Tensor, order: int) -> Tensor:
    """Return the Bessel function I of order 0 or 1, times exp(-|x|), as a mean over angles."""
    size = value.abs()
    angles = (torch.arange(24, dtype=torch.float64) + 0.5) * (math.pi / 24)
    small = size.clamp(max=30).unsqueeze(-1)
    terms = torch.exp(small * (angles.cos() - 1))
    if order:
        terms = terms * small * angles.sin() ** 2
    large = size.clamp(min=30)
    far = _series(1 / large, _asymptotic(order, -1)) / (2 * math.pi * large).sqrt()
    found = torch.where(size > 30, far, terms.mean(-1))
    return torch.where(value < 0, -found, found) if order else found


def _scaled_k(value: Tensor, order: int) -> Tensor:
    """Return the Bessel function K of order 0 or 1, times exp(x), as an integral."""
    steps = torch.arange(61, dtype=torch.float64) * 0.2
    weights = torch.where(steps == 0, 0.1, 0.2) * (steps.cosh() if order else 1.0)
    middle = value.clamp(1e-3, 15).unsqueeze(-1)
    near = (torch.exp(middle * (1 - steps.cosh())) * weights).sum(-1)
    large = value.clamp(min=15)
    far = _series(1 / large, _asymptotic(order, 1)) * (math.pi / 2 / large).sqrt()
    logarithm = torch.log(value / 2) + float.fromhex("0x1.2788cfc6fb619p-1")  # Euler's constant
    tiny = 1 / value + value / 2 * (logarithm - 0.5)
    if not order:
        tiny = value * value / 4 - logarithm * (1 + value * value / 4)
    found = torch.where(value < 1e-3, tiny * value.exp(), torch.where(value > 15, far, near))
    return torch.where(value == 0, math.inf, torch.where(value < 0, math.nan, found))


for _order in (0, 1):
    for _operator in (
        getattr(prims, f"bessel_i{_order}"),
        getattr(aten, f"special_modified_bessel_i{_order}"),
    ):
        decomposes(_operator)(
            _exactly(lambda value, order=_order: _scaled_i(value, order) * value.abs().exp())
        )
    decomposes(getattr(prims, f"bessel_i{_order}e"))(
        _exactly(lambda value, order=_order: _scaled_i(value, order))
    )
    decomposes(getattr(aten, f"special_modified_bessel_k{_order}"))(
        _exactly(lambda value, order=_order: _scaled_k(value, order) * torch.exp(-value))
    )
    decomposes(getattr(aten, f"special_scaled_modified_bessel_k{_order}"))(
        _exactly(lambda value, order=_order: _scaled_k(value, order))
    )


def _of_floats(operator: Any) -> Function:
    """Return a decomposition that converts whole numbers first."""
    return lambda value: (
        NotImplemented if value.is_floating_point() else operator(as_type(value, torch.float32))
    )


for _operator in (aten.special_bessel_y0, aten.special_bessel_y1):
    decomposes(_operator)(_of_floats(_operator))


@decomposes(prims.spherical_bessel_j0)
@_exactly
def _spherical(value: Tensor) -> Tensor:
    found = torch.where(value == 0, 1.0, value.sin() / value)
    return torch.where(value.isinf(), 0.0, found)


def _shifted(value: Tensor, count: int) -> Tensor:
    return value.unsqueeze(-1) + torch.arange(count, dtype=torch.float64)


@decomposes(prims.digamma)
@_exactly
def _digamma(value: Tensor) -> Tensor:
    is_left = value <= 0
    right = torch.where(is_left, 1 - value, value)
    far = right + _SHIFT
    factors = [0.0, *(-number / (2 * k) for k, number in enumerate(_BERNOULLI, 1))]
    found = far.log() - 0.5 / far + _series(1 / far**2, factors)
    found = found - (1 / _shifted(right, _SHIFT)).sum(-1)
    part = value - value.round()
    found = torch.where(is_left, found - math.pi / torch.tan(math.pi * part), found)
    found = torch.where((part == 0) & is_left, math.nan, found)
    pole = torch.where(1 / value < 0, math.inf, -math.inf)
    found = torch.where(value == 0, pole, found)
    return torch.where(value == math.inf, math.inf, found)


def _zeta_of(power: Tensor, start: Tensor) -> Tensor:
    """Return Hurwitz's zeta function by the sum of Euler and Maclaurin."""
    count = _SHIFT + _MOST_NEGATIVE
    exponent = power.unsqueeze(-1)
    found = _shifted(start, count).pow(-exponent).sum(-1)
    far = start + count
    found = found + far.pow(1 - power) / (power - 1) + far.pow(-power) / 2
    rising = power
    for place, number in enumerate(_BERNOULLI):
        order = 2 * place + 1
        found = found + far.pow(-power - order) * rising * (number / math.factorial(order + 1))
        rising = rising * (power + order) * (power + order + 1)
    found = torch.where(power == 1, math.inf, torch.where(power < 1, math.nan, found))
    is_whole = start == start.floor()
    found = torch.where((start < 0) & (power != power.floor()), math.nan, found)
    found = torch.where((start < -_MOST_NEGATIVE) & (power > 1), math.nan, found)
    return torch.where((start <= 0) & is_whole & (power > 1), math.inf, found)


decomposes(prims.zeta)(_exactly(_zeta_of))


@decomposes(aten.polygamma)
def _polygamma(order: int, value: Tensor) -> Any:
    if order == 0:
        return torch.digamma(value)
    kind, wide = torch.result_type(value, 1.0), as_type(value, torch.float64)
    found = _zeta_of(torch.full((), order + 1.0, dtype=torch.float64), wide)
    found = found * ((-1) ** (order + 1) * math.factorial(order))
    return torch.where(wide == math.inf, math.nan if order > 1 else 0.0, found).to(kind)


def _quantile(tail: Tensor) -> Tensor:
    """Return where a standard normal variable leaves so much of itself above, up to a half."""
    depth = (-2 * torch.log(tail)).sqrt()
    found = depth - (2.30753 + 0.27061 * depth) / (1 + depth * (0.99229 + 0.04481 * depth))
    for _ in range(_NEWTON_STEPS):
        above = torch.erfc(found / math.sqrt(2)) / 2
        density = torch.exp(-found * found / 2) / math.sqrt(2 * math.pi)
        step = (above - tail) / density
        found = found + step / (1 - found * step / 2)
    return found


@decomposes(prims.erf_inv)
@_exactly
def _erf_inv(value: Tensor) -> Tensor:
    size = value.abs()
    far = _quantile((1 - size.clamp(0.5, 1 - 1e-16)) / 2) / math.sqrt(2)
    small = size.clamp(max=0.5)
    near = small * (math.sqrt(math.pi) / 2)
    for _ in range(_NEWTON_STEPS):
        near = near - (torch.erf(near) - small) * torch.exp(near * near) * math.sqrt(math.pi) / 2
    found = torch.where(size < 0.5, near, far)
    found = torch.where(size == 1, math.inf, torch.where(size > 1, math.nan, found))
    return torch.where(value < 0, -found, found)


@decomposes(prims.ndtri)
@_exactly
def _ndtri(value: Tensor) -> Tensor:
    is_lower = value < 0.5
    tail = torch.where(is_lower, value, 1 - value)
    found = _quantile(tail.clamp(1e-300, 0.5))
    found = torch.where(tail == 0, math.inf, torch.where(tail < 0, math.nan, found))
    return torch.where(is_lower, -found, found)


@decomposes(prims.frexp)
def _frexp(value: Tensor) -> Any:
    wide = value.double()
    exponent = torch.where(wide == 0, 0.0, wide.abs().log2().floor() + 1)
    exponent = torch.where(wide.isfinite(), exponent, 0.0)
    half = (exponent / 2).floor()
    found = wide * torch.exp2(-half) * torch.exp2(half - exponent)
    over, under = found.abs() >= 1, (found.abs() < 0.5) & (wide != 0)
    over, under = over & wide.isfinite(), under & wide.isfinite()
    found = torch.where(over, found / 2, torch.where(under, found * 2, found))
    exponent = exponent + over.double() - under.double()
    return found.to(value.dtype), exponent.int()


def _chebyshev(kind: str, value: Tensor, degree: Tensor) -> Tensor:
    """Return a Chebyshev polynomial by its angle, or its hyperbolic angle outside [-1, 1]."""
    degree = degree.trunc()
    inside, outside = value.abs() <= 1, value.abs().clamp(min=1)
    angle, far = value.abs().clamp(max=1).acos(), outside.acosh()
    half, ends = degree + 0.5, angle == 0
    if kind == "t":
        found = torch.where(inside, torch.cos(degree * angle), torch.cosh(degree * far))
    elif kind == "u":
        near = torch.sin((degree + 1) * angle) / angle.sin()
        near = torch.where(ends, degree + 1, near)
        found = torch.where(inside, near, torch.sinh((degree + 1) * far) / far.sinh())
    else:  # V of a negative number is W of its size, but for the sign, and W is V
        sines = torch.where(ends, 2 * degree + 1, torch.sin(half * angle) / torch.sin(angle / 2))
        sines = torch.where(inside, sines, torch.sinh(half * far) / torch.sinh(far / 2))
        cosines = torch.cos(half * angle) / torch.cos(angle / 2)
        cosines = torch.where(inside, cosines, torch.cosh(half * far) / torch.cosh(far / 2))
        found = torch.where((value < 0) == (kind == "v"), sines, cosines)
    found = torch.where((value < 0) & (degree.remainder(2) == 1), -found, found)
    return torch.where(degree < 0, 0.0, found)


for _kind in "tuvw":
    decomposes(getattr(aten, f"special_chebyshev_polynomial_{_kind}"))(
        _exactly(lambda value, degree, kind=_kind: _chebyshev(kind, value, degree))
    )
    decomposes(getattr(aten, f"special_shifted_chebyshev_polynomial_{_kind}"))(
        _exactly(lambda value, degree, kind=_kind: _chebyshev(kind, 2 * value - 1, degree))
    )
