"""Decompositions of small linear systems, step by step: an extent is a number of steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

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


@decomposes(aten.einsum)
def _einsum(equation: str, operands: Any, *, path: Any = None) -> Any:
    """Sum whole numbers in PyTorch's types. ONNX's operator keeps the type of what it adds."""
    if any(operand.dtype.is_floating_point or operand.is_complex() for operand in operands):
        return NotImplemented
    with _disable_current_modes():
        zeros = [torch.zeros([*operand.shape], dtype=operand.dtype) for operand in operands]
        kind = torch.einsum(equation, zeros).dtype
    if all(operand.dtype == kind for operand in operands):
        return NotImplemented
    return aten.einsum(equation, [operand.to(kind) for operand in operands], path=path)


def _factored(matrix: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return both triangles in one matrix, the pivots, and the order of the rows."""
    rows, columns = matrix.shape[-2:]
    places = torch.arange(rows)
    order, found = places.expand(matrix.shape[:-1]), matrix
    pivots: list[Tensor] = []
    for step in range(min(rows, columns)):
        chosen = torch.full((*matrix.shape[:-2], 1), step)
        if pivot:
            chosen = step + found[..., step:, step].abs().argmax(-1, keepdim=True)
        pivots.append(chosen + 1)
        swap = torch.where(places == step, chosen, torch.where(places == chosen, step, places))
        found = found.gather(-2, swap.unsqueeze(-1).expand(found.shape))
        order = order.gather(-1, swap)
        factor = found[..., step] / found[..., step : step + 1, step]
        factor = torch.where(places > step, factor, 0.0).to(found.dtype).unsqueeze(-1)
        row = torch.where(torch.arange(columns) > step, found[..., step : step + 1, :], 0.0)
        is_below = (places > step).unsqueeze(-1) & (torch.arange(columns) == step)
        found = torch.where(is_below, factor, found - factor * row).to(matrix.dtype)
    return found, torch.cat(pivots, -1).int(), order


def _is_large(matrix: Tensor) -> bool:
    return bool(max(matrix.shape[-2:]) > _MOST_STEPS)


def _unpacked(factored: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = factored.shape[-2:]
    least = min(rows, columns)
    one = torch.eye(rows, least, dtype=factored.dtype)
    lower = factored[..., :, :least].tril(-1) + one
    shuffled = (torch.arange(rows).unsqueeze(-1) == order.unsqueeze(-2)).to(factored.dtype)
    return shuffled, lower, factored[..., :least, :].triu()


def _ordered(pivots: Tensor, rows: int) -> Tensor:
    """Return the order of the rows after the exchanges that pivots name."""
    places = torch.arange(rows)
    order = places.expand(*pivots.shape[:-1], rows)
    for step in range(pivots.shape[-1]):
        chosen = pivots[..., step : step + 1].long() - 1
        swap = torch.where(places == step, chosen, torch.where(places == chosen, step, places))
        order = order.gather(-1, swap)
    return order


def _no_errors(matrix: Tensor) -> Tensor:
    return matrix.new_zeros(matrix.shape[:-2], dtype=torch.int32)


@decomposes(aten.linalg_lu_factor_ex)
def _lu_factor(matrix: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if _is_large(matrix):
        return NotImplemented
    return (*_factored(matrix, pivot)[:2], _no_errors(matrix))


@decomposes(aten.linalg_lu)
def _lu(matrix: Tensor, *, pivot: bool = True) -> Any:
    if _is_large(matrix) or not pivot:
        return NotImplemented
    found, _, order = _factored(matrix)
    return _unpacked(found, order)


@decomposes(aten.lu_unpack)
def _lu_unpack(
    factored: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    if _is_large(factored) or not (unpack_data and unpack_pivots):
        return NotImplemented
    return _unpacked(factored, _ordered(pivots, factored.shape[-2]))


@decomposes(aten.linalg_lu_solve)
def _lu_solve(
    factored: Tensor, pivots: Tensor, right: Tensor, *, left: bool = True, adjoint: bool = False
) -> Any:
    if _is_large(factored) or adjoint:
        return NotImplemented
    if not left:  # X A = B is A' X' = B', and A' is U' L' P
        extents = torch.broadcast_shapes(factored.shape[:-2], right.shape[:-2])
        rows = right.mT.expand(*extents, *right.mT.shape[-2:])
        first = _triangular(factored.mT, rows, upper=False)
        found = _triangular(factored.mT, first, upper=True, unitriangular=True)
        back = _ordered(pivots, factored.shape[-1]).argsort(-1).unsqueeze(-1)
        return found.gather(-2, back.expand(found.shape)).mT
    extents = torch.broadcast_shapes(factored.shape[:-2], right.shape[:-2])
    order = _ordered(pivots, factored.shape[-1]).unsqueeze(-1)
    rows = right.expand(*extents, *right.shape[-2:])
    rows = rows.gather(-2, order.expand(rows.shape))
    first = _triangular(factored, rows, upper=False, unitriangular=True)
    return _triangular(factored, first, upper=True)


def _determinant(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the diagonal that is left, its sign from the exchanges, and the factors."""
    factored, pivots, _ = _factored(matrix)
    moved = (pivots - 1 != torch.arange(matrix.shape[-1])).sum(-1)
    sign = (1 - 2 * (moved % 2)).to(matrix.dtype)
    return factored.diagonal(0, -2, -1), sign, factored, pivots


@decomposes(aten._linalg_slogdet)
def _slogdet(matrix: Tensor) -> Any:
    if _is_large(matrix):
        return NotImplemented
    diagonal, sign, factored, pivots = _determinant(matrix)
    return sign * diagonal.sign().prod(-1), diagonal.abs().log().sum(-1), factored, pivots


@decomposes(aten._linalg_solve_ex)
def _solve_ex(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> Any:
    if _is_large(matrix):
        return NotImplemented
    found = _solution(matrix, right, left=left)
    return found, *_factored(matrix)[:2], _no_errors(matrix)


@decomposes(aten.cholesky_solve)
def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Any:
    if _is_large(factor):
        return NotImplemented
    lower = factor.mT if upper else factor
    return _triangular(lower.mT, _triangular(lower, right, upper=False), upper=True)


@decomposes(aten.cholesky_inverse)
def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    one = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return _cholesky_solve(one, factor, upper)


@decomposes(aten.triangular_solve)
def _old_triangular(
    right: Tensor,
    matrix: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    if _is_large(matrix):
        return NotImplemented
    given = matrix.mT if transpose else matrix
    upper = upper != transpose
    return _triangular(given, right, upper=upper, unitriangular=unitriangular), matrix.clone()


def _reflected(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return what LAPACK's geqrf does: R, the reflections below it, and their factors."""
    rows, columns = matrix.shape[-2:]
    places, found, factors = torch.arange(rows), matrix, []
    for step in range(min(rows, columns)):
        column = found[..., :, step]
        first = column[..., step : step + 1]
        rest = torch.where(places > step, column, 0.0)
        size = torch.sqrt(first * first + (rest * rest).sum(-1, keepdim=True))
        is_done = (rest == 0).all(-1, keepdim=True)
        beta = torch.where(is_done, first, torch.where(first < 0, size, -size))
        factor = torch.where(is_done, 0.0, (beta - first) / torch.where(beta == 0, 1.0, beta))
        scale = torch.where(is_done, 1.0, first - beta)
        vector = torch.where(places == step, 1.0, rest / scale).unsqueeze(-1)
        applied = found - factor.unsqueeze(-1) * vector * (vector * found).sum(-2, keepdim=True)
        changes = torch.arange(columns) > step
        kept = torch.where(places == step, beta, vector[..., 0])
        kept = torch.where(places < step, column, kept).unsqueeze(-1)
        is_own = torch.arange(columns) == step
        found = torch.where(changes, applied, torch.where(is_own, kept, found)).to(matrix.dtype)
        factors.append(factor.to(matrix.dtype))
    return found, torch.cat(factors, -1)


def _rotated(reflections: Tensor, factors: Tensor, value: Tensor, *, forward: bool) -> Tensor:
    """Apply reflections from the left, the last first unless `forward`."""
    places = torch.arange(reflections.shape[-2])
    steps = range(factors.shape[-1])
    for step in steps if forward else reversed(steps):
        column = torch.where(places > step, reflections[..., :, step], 0.0)
        vector = torch.where(places == step, 1.0, column).to(value.dtype).unsqueeze(-1)
        product = (vector * value).sum(-2, keepdim=True)
        value = value - factors[..., step, None, None] * vector * product
    return value


@decomposes(aten.linalg_householder_product)
def _householder(reflections: Tensor, factors: Tensor) -> Any:
    if _is_large(reflections):
        return NotImplemented
    one = torch.eye(*reflections.shape[-2:], dtype=reflections.dtype).expand(reflections.shape)
    return _rotated(reflections, factors, one, forward=False)


@decomposes(aten.ormqr)
def _ormqr(
    reflections: Tensor,
    factors: Tensor,
    value: Tensor,
    left: bool = True,
    transpose: bool = False,
) -> Any:
    if _is_large(reflections):
        return NotImplemented
    if left:
        return _rotated(reflections, factors, value, forward=transpose)
    return _rotated(reflections, factors, value.mT, forward=not transpose).mT


@decomposes(aten.linalg_qr)
def _qr(matrix: Tensor, mode: str = "reduced") -> Any:
    if _is_large(matrix):
        return NotImplemented
    found, factors = _reflected(matrix)
    rows, columns = matrix.shape[-2:]
    kept = rows if mode == "complete" else min(rows, columns)
    if mode == "r":
        return matrix.new_empty(0), found[..., :kept, :].triu()
    one = torch.eye(rows, kept, dtype=matrix.dtype).expand(*matrix.shape[:-2], rows, kept)
    return _rotated(found, factors, one, forward=False), found[..., :kept, :].triu()


@decomposes(aten.linalg_matrix_exp)
def _matrix_exp(matrix: Tensor) -> Any:
    """Scale to a small norm, add Taylor's series and square."""
    wide, one = matrix.double(), torch.eye(matrix.shape[-1], dtype=torch.float64)
    halvings = 12
    small = wide / 2**halvings
    found = one + small
    term = small
    for order in range(2, 9):
        term = term @ small / order
        found = found + term
    for _ in range(halvings):
        found = found @ found
    return found.to(matrix.dtype)
