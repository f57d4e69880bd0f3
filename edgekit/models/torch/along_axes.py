"""Decompositions of operators that sort, search or accumulate along an axis."""

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
    is_half,
)


def _scanned(values: tuple[Tensor, ...], dim: int, combine: Function) -> tuple[Tensor, ...]:
    """Combine all elements up to each, in as many steps as the extent has binary digits."""
    extent, step = values[0].shape[dim] if values[0].ndim else 1, 1
    while step < extent:
        before = [value.narrow(dim, 0, extent - step) for value in values]
        after = [value.narrow(dim, step, extent - step) for value in values]
        first = [value.narrow(dim, 0, step) for value in values]
        combined = combine(*before, *after)
        values = tuple(torch.cat(pair, dim) for pair in zip(first, combined, strict=True))
        step *= 2
    return values


@decomposes(aten.cumprod)
def _cumprod(value: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    kind = dtype or (value.dtype if value.dtype.is_floating_point else torch.int64)
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    return _scanned((value.to(kind).to(wide),), dim, lambda a, b: (a * b,))[0].to(kind)


@decomposes(aten.logcumsumexp)
def _logcumsumexp(value: Tensor, dim: int) -> Any:
    wide = value.to(torch.float32) if is_half(value) else value
    return _scanned((wide,), dim, lambda a, b: (torch.logaddexp(a, b),))[0].to(value.dtype)


def _running(is_ahead: Function) -> Function:
    """Return a decomposition that keeps the largest or smallest element so far, and its place."""

    def choose(value: Tensor, place: Tensor, later: Tensor, later_place: Tensor) -> Any:
        takes = is_ahead(later, value)
        if value.dtype.is_floating_point:
            takes = takes | later.isnan()
        return torch.where(takes, later, value), torch.where(takes, later_place, place)

    def compute(value: Tensor, dim: int) -> Any:
        if value.ndim == 0:
            return value.clone(), torch.zeros((), dtype=torch.int64)
        shape = [1] * value.ndim
        shape[dim] = value.shape[dim]
        places = torch.arange(value.shape[dim]).reshape(shape).expand(value.shape)
        if value.dtype == torch.bool:
            found = _scanned((value.byte(), places), dim, choose)
            return found[0].bool(), found[1]
        return _scanned((value, places), dim, choose)

    return compute


decomposes(aten.cummax)(_running(torch.ge))
decomposes(aten.cummin)(_running(torch.le))


@decomposes(aten.searchsorted)
def _searchsorted(
    edges: Tensor,
    value: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """Count the edges before each value."""
    value = value if isinstance(value, Tensor) else torch.full((), value)
    if sorter is not None:
        edges = edges.gather(-1, sorter)
    edges = edges if edges.ndim == 1 else edges.unsqueeze(-2)
    is_behind = (
        edges > value.unsqueeze(-1) if right or side == "right" else edges >= value.unsqueeze(-1)
    )
    return (~is_behind).sum(-1).to(torch.int32 if out_int32 else torch.int64)


@decomposes(aten.bucketize)
def _bucketize(value: Any, edges: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return _searchsorted(edges, value, out_int32=out_int32, right=right)


def _extreme(operator: Any) -> Function:
    """Return a decomposition that names all axes, and computes half precision in float32."""

    def compute(value: Tensor, dim: Any = (), keepdim: bool = False) -> Any:
        if value.ndim == 0:
            return value.clone()
        axes = list(dim) or list(range(value.ndim))
        if not is_half(value) and dim:
            return NotImplemented
        wide = value.float() if is_half(value) else value
        return operator(wide, axes, keepdim).to(value.dtype)

    return compute


for _operator in (aten.amax, aten.amin):
    decomposes(_operator)(_extreme(_operator))


@decomposes(aten.cdist)
def _cdist(first: Tensor, second: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    apart = (first.unsqueeze(-2) - second.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(first.dtype).sum(-1)
    if math.isinf(p):
        return apart.amax(-1)
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    return apart.sum(-1) if p == 1 else apart.pow(p).sum(-1).pow(1 / p)


@decomposes(aten.kthvalue)
def _kthvalue(value: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, indices = value.sort(dim)
    found = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return found if keepdim else tuple(part.squeeze(dim) for part in found)


@decomposes(aten.median)
def _median(value: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if value.dtype.is_floating_point:
        # NaN is sorted to the end, and PyTorch's median of it is NaN.
        hidden = value.isnan().any() if dim is None else value.isnan().any(dim, keepdim=keepdim)
    flat = value.reshape(-1) if dim is None else value
    axis = 0 if dim is None else dim
    found = _kthvalue(flat, (flat.shape[axis] + 1) // 2, axis, keepdim and dim is not None)
    middle = found[0]
    if value.dtype.is_floating_point:
        middle = torch.where(hidden, math.nan, middle).to(value.dtype)
    return middle if dim is None else (middle, found[1])


@decomposes(aten.mode)
def _mode(value: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Choose the smallest of the most frequent elements."""
    if value.ndim == 0:
        return value.clone(), torch.zeros((), dtype=torch.int64)
    last = value.movedim(dim, -1)
    counts = (last.unsqueeze(-1) == last.unsqueeze(-2)).sum(-1)
    values, places = last.sort(-1)
    first = counts.gather(-1, places).argmax(-1, keepdim=True)
    found = values.gather(-1, first).movedim(-1, dim), places.gather(-1, first).movedim(-1, dim)
    return found if keepdim else tuple(part.squeeze(dim) for part in found)


@decomposes(aten.nanmedian)
def _nanmedian(value: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    if not value.dtype.is_floating_point:
        return _median(value, dim, keepdim)
    flat, axis = (value.reshape(-1), 0) if dim is None or not value.ndim else (value, dim)
    values, indices = flat.sort(axis)  # NaN comes last
    counts = (~flat.isnan()).sum(axis, keepdim=True)
    middle = ((counts - 1) // 2).clamp(min=0)
    found = values.gather(axis, middle), indices.gather(axis, middle)
    if dim is None or not value.ndim:
        found = found[0].reshape(()), found[1].reshape(())
    elif not keepdim:
        found = found[0].squeeze(axis), found[1].squeeze(axis)
    return found[0] if dim is None else found


def _stable_sort(
    value: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    return torch.sort(value, dim, descending)  # ONNX's operator keeps the order of equals


DECOMPOSITIONS[aten.sort.stable] = _stable_sort


def _steps(start: Any, end: Any, steps: int, kind: torch.dtype | None) -> Any:
    """Return evenly spaced numbers; None where both ends are known, which the exporter does."""
    if not isinstance(start, Tensor) and not isinstance(end, Tensor):
        return None
    wide = kind if kind is not None and kind.is_floating_point else torch.float64
    first, last = as_type(start, wide), as_type(end, wide)
    return first + (last - first) * (torch.arange(steps, dtype=wide) / max(steps - 1, 1))


@decomposes(aten.linspace)
def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **_: Any) -> Any:
    kind = dtype or torch.get_default_dtype()
    found = _steps(start, end, steps, kind)
    return NotImplemented if found is None else found.to(kind)


@decomposes(aten.logspace)
def _logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, **_: Any
) -> Any:
    kind = dtype or torch.get_default_dtype()
    found = _steps(start, end, steps, kind)
    return NotImplemented if found is None else torch.pow(base, found).to(kind)


def _in_given_type(function: Function) -> Function:
    """Return a decomposition that converts before it computes. The exporter converts the result."""

    def compute(value: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if dtype is None or dtype == value.dtype:
            return NotImplemented
        return function(value.to(dtype), dim)

    return compute


DECOMPOSITIONS[aten.softmax.int] = _in_given_type(torch.softmax)
DECOMPOSITIONS[aten.log_softmax.int] = _in_given_type(torch.log_softmax)


@decomposes(aten.scaled_dot_product_attention)
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute what is not of four dimensions, which the exporter does not take."""
    if query.ndim == key.ndim == value.ndim == 4 or dropout_p or enable_gqa:
        return NotImplemented
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        is_truth = attn_mask.dtype == torch.bool
        scores = torch.where(attn_mask, scores, -math.inf) if is_truth else scores + attn_mask
    return aten._safe_softmax(scores, -1) @ value
