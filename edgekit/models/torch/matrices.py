"""Decompositions of small linear systems, step by step: an extent is a number of steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgekit.models.torch.decomposing import aten, decomposes

_MOST_STEPS = 32
"""The largest extent. A larger one would give a program of thousands of nodes."""


@decomposes(aten._linalg_check_errors)
def _check_errors(*_: Any, **__: Any) -> None:
    """Check nothing: a system without a solution gives infinities."""


@decomposes(aten.linalg_inv_ex)
def _inverse(matrix: Tensor, *, check_errors: bool = False) -> Any:
    if matrix.shape[-1] > _MOST_STEPS:
        return NotImplemented
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)
    return _solved(matrix, one), matrix.new_zeros(matrix.shape[:-2], dtype=torch.int32)


@decomposes(aten.linalg_solve)
def _solution(matrix: Tensor, right: Tensor, *, left: bool = True) -> Any:
    if matrix.shape[-1] > _MOST_STEPS:
        return NotImplemented
    is_vector = right.ndim == 1 or right.shape == matrix.shape[:-1]
    columns = right.unsqueeze(-1) if is_vector else right
    if not left:
        matrix, columns = matrix.mT, columns.mT
    batch = torch.broadcast_shapes(matrix.shape[:-2], columns.shape[:-2])
    found = _solved(
        matrix.expand(*batch, *matrix.shape[-2:]), columns.expand(*batch, *columns.shape[-2:])
    )
    found = found if left else found.mT
    return found.squeeze(-1) if is_vector else found


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Eliminate column by column, the largest element of each first."""
    extent = matrix.shape[-1]
    rows, places = torch.cat([matrix, right], -1), torch.arange(extent)
    for step in range(extent):
        pivot = step + rows[..., step:, step].abs().argmax(-1, keepdim=True)
        order = torch.where(places == step, pivot, torch.where(places == pivot, step, places))
        rows = rows.gather(-2, order.unsqueeze(-1).expand(rows.shape))
        row = rows[..., step : step + 1, :] / rows[..., step : step + 1, step : step + 1]
        rest = rows - rows[..., step : step + 1] * row
        rows = torch.where((places == step).unsqueeze(-1), row, rest)
    return rows[..., extent:]


@decomposes(aten.linalg_cholesky_ex)
def _cholesky(matrix: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    if matrix.shape[-1] > _MOST_STEPS:
        return NotImplemented
    rest, columns = (matrix.mT if upper else matrix), []
    for step in range(matrix.shape[-1]):
        column = rest[..., :, step] / rest[..., step, step].sqrt().unsqueeze(-1)
        column = torch.where(torch.arange(matrix.shape[-1]) < step, 0.0, column).to(matrix.dtype)
        rest = rest - column.unsqueeze(-1) * column.unsqueeze(-2)
        columns.append(column)
    found = torch.stack(columns, -2 if upper else -1)
    return found, matrix.new_zeros(matrix.shape[:-2], dtype=torch.int32)


@decomposes(aten.cholesky)
def _old_cholesky(matrix: Tensor, upper: bool = False) -> Any:
    found = _cholesky(matrix, upper=upper)
    return found if found is NotImplemented else found[0]


@decomposes(aten.linalg_solve_triangular)
def _triangular(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    extent = matrix.shape[-1]
    if extent > _MOST_STEPS:
        return NotImplemented
    if not left:
        matrix, right, upper = matrix.mT, right.mT, not upper
    batch = torch.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    rest = right.expand(*batch, *right.shape[-2:])
    rows: dict[int, Tensor] = {}
    for step in reversed(range(extent)) if upper else range(extent):
        row = rest[..., step : step + 1, :]
        if not unitriangular:
            row = row / matrix[..., step : step + 1, step : step + 1]
        rest = rest - matrix[..., :, step : step + 1] * row
        rows[step] = row
    found = torch.cat([rows[step] for step in range(extent)], -2)
    return found if left else found.mT


@decomposes(aten._pdist_forward)
def _pdist(value: Tensor, p: float = 2.0) -> Any:
    first, second = torch.triu_indices(len(value), len(value), 1)
    return torch.linalg.vector_norm(value[first] - value[second], p, -1)
