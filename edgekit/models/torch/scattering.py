"""Decompositions of operators that write some elements of a tensor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from edgekit.models.torch.decomposing import DECOMPOSITIONS, Function, aten, decomposes


def _written(value: Tensor, places: Tensor, source: Tensor) -> Tensor:
    """Write a source to places among the elements of a tensor."""
    flat = value.reshape(-1).index_put((places.reshape(-1),), source.reshape(-1))
    return flat.reshape(value.shape)


def _places(shape: Any) -> Tensor:
    return torch.arange(math.prod(shape)).reshape(shape)


@decomposes(aten.diagonal_scatter)
def _diagonal_scatter(
    value: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    return _written(value, _places(value.shape).diagonal(offset, dim1, dim2), source)


@decomposes(aten.as_strided_scatter)
def _as_strided_scatter(
    value: Tensor, source: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Any:
    chosen = _places(value.shape).as_strided(size, stride, storage_offset or 0)
    return _written(value, chosen, source)


@decomposes(aten.masked_scatter)
def _masked_scatter(value: Tensor, mask: Tensor, source: Tensor) -> Any:
    value, mask = torch.broadcast_tensors(value, mask)
    counted = mask.reshape(-1).to(torch.int64).cumsum(0).sub(1).clamp(min=0)
    return torch.where(mask, source.reshape(-1)[counted].reshape(mask.shape), value)


@decomposes(aten.put)
def _put(value: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    flat, places = value.reshape(-1), index.reshape(-1)
    places = torch.where(places < 0, places + flat.shape[0], places)
    return flat.index_put((places,), source.reshape(-1), accumulate).reshape(value.shape)


@decomposes(aten.index_reduce)
def _index_reduce(
    value: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    whole = value.reshape(1) if value.ndim == 0 else value
    added = source.reshape(1) if source.ndim == 0 else source
    shape = [1] * added.ndim
    shape[dim] = -1
    places = index.to(torch.int64).reshape(shape).expand(added.shape)
    found = whole.scatter_reduce(dim, places, added, reduce, include_self=include_self)
    return found.reshape(value.shape)


@decomposes(aten.scatter_reduce)
def _scattered_mean(
    value: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Divide a sum by its count. The exporter writes the last element instead of the mean."""
    if value.dtype == torch.bool:
        found = aten.scatter_reduce(
            value.int(), dim, index, source.int(), reduce, include_self=include_self
        )
        return found.bool()
    if reduce != "mean":
        return NotImplemented
    shape = value.shape
    value, index, source = (x.reshape(1) if x.ndim == 0 else x for x in (value, index, source))
    source = source[tuple(map(slice, index.shape))]
    added = torch.zeros_like(value).scatter_add(dim, index, torch.ones_like(source))
    counts = added + 1 if include_self else added.clamp(min=1)
    start = value if include_self else torch.where(added > 0, 0, value).to(value.dtype)
    total = start.scatter_add(dim, index, source)
    mode = None if value.dtype.is_floating_point else "floor"
    return torch.div(total, counts, rounding_mode=mode).reshape(shape)


@decomposes(aten.index_put, aten._unsafe_index_put)
def _index_put(
    value: Tensor, indices: Any, source: Tensor, accumulate: bool = False, *_: Any
) -> Any:
    if value.dtype != torch.bool or not accumulate:
        return NotImplemented
    return value.int().index_put(indices, source.int(), accumulate).bool()


def _of_truths(operator: Any) -> Function:
    """Return a decomposition that adds truths as numbers."""

    def compute(value: Tensor, dim: int, index: Tensor, source: Tensor, **options: Any) -> Any:
        if value.dtype != torch.bool:
            return NotImplemented
        return operator(value.int(), dim, index, source.int(), **options).bool()

    return compute


DECOMPOSITIONS[aten.scatter_add.default] = _of_truths(torch.scatter_add)
DECOMPOSITIONS[aten.index_add.default] = _of_truths(torch.index_add)


@decomposes(aten.index_select)
def _index_select(value: Tensor, dim: int, index: Tensor) -> Any:
    return value.clone() if value.ndim == 0 else NotImplemented


@decomposes(aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d)
def _replicated(value: Tensor, padding: list[int]) -> Any:
    """Choose the elements one by one where an edge is cut off, which ONNX does first."""
    if min(padding) >= 0:
        return NotImplemented
    for place in range(len(padding) // 2):
        axis = value.ndim - 1 - place
        before, after = padding[2 * place : 2 * place + 2]
        chosen = torch.arange(-before, value.shape[axis] + after)
        value = value.index_select(axis, chosen.clamp(0, value.shape[axis] - 1))
    return value


@decomposes(aten.pad)
def _pad(value: Tensor, padding: list[int], mode: str = "constant", number: Any = None) -> Any:
    return _replicated(value, padding) if mode == "replicate" else NotImplemented


@decomposes(aten.constant_pad_nd)
def _padded(value: Tensor, padding: list[int], number: Any = 0) -> Any:
    """Pad both parts of complex numbers."""
    if not value.is_complex() or isinstance(number, complex):
        return NotImplemented
    parts = torch.view_as_real(value)
    real, imaginary = (
        aten.constant_pad_nd(parts.select(-1, 0), padding, number),
        aten.constant_pad_nd(parts.select(-1, 1), padding, 0),
    )
    return torch.view_as_complex(torch.stack([real, imaginary], -1))


@decomposes(aten._conj_physical, aten.conj_physical)
def _conjugate(value: Tensor) -> Any:
    if not value.is_complex():
        return NotImplemented
    parts = torch.view_as_real(value)
    return torch.view_as_complex(torch.stack([parts.select(-1, 0), -parts.select(-1, 1)], -1))


@decomposes(torch.ops.prims.view_of)
def _view(value: Tensor) -> Any:
    return value.clone()
