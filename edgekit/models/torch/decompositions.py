"""Operators that PyTorch's ONNX exporter lacks or gets wrong, in operators that it has.

The functions are in PyTorch's own terms, so that PyTorch's rules of types hold inside them. One
that returns NotImplemented leaves the call to the exporter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import onnx_ir as ir
import torch
from onnxscript import evaluator
from onnxscript.function_libs.torch_lib.ops import core as torchlib
from torch import Tensor

aten = torch.ops.aten
Function: TypeAlias = Callable[..., Any]

DOMAIN = "edgekit"
"""The domain of the importer's operators that ONNX does not have."""
DECOMPOSITIONS: dict[Any, Function] = {}


def node(domain: str, name: str, inputs: list[Any], outputs: int = 1, **attributes: int) -> Any:
    """Add a node to the ONNX graph under construction, and return its outputs."""
    values = [value for value in inputs if isinstance(value, ir.Value)]
    added = ir.Node(
        domain, name, values, ir.convenience.convert_attributes(attributes), num_outputs=outputs
    )
    recorder: Any = evaluator.default()
    recorder.nodes.append(added)
    return added.outputs[0] if outputs == 1 else list(added.outputs)


def _decomposes(*operators: Any) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for operator in operators:
            for overload in operator.overloads():
                if not overload.endswith("out"):
                    DECOMPOSITIONS[getattr(operator, overload)] = function
        return function

    return register


def _in_one_type(first: Any, second: Any, *, wide: bool = False) -> tuple[Tensor, Tensor]:
    """Return both operands in the type of the result; with `wide`, half precision in float32."""
    kind = torch.result_type(first, second)
    if wide and kind in (torch.float16, torch.bfloat16):
        kind = torch.float32
    return _tensor(first, kind), _tensor(second, kind)


def _tensor(value: Any, kind: torch.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(kind)
    return torch.full((), value, dtype=kind)


def _is_negative(value: Tensor) -> Tensor:
    """Tell numbers with a minus sign, -0.0 too."""
    return (value < 0) | ((value == 0) & (1 / value < 0))


@_decomposes(aten.copysign)
def _copysign(first: Any, second: Any) -> Any:
    kind = torch.result_type(first, second)
    kind = kind if kind.is_floating_point else torch.get_default_dtype()
    size, sign = _tensor(first, kind).abs(), _tensor(second, kind)
    return torch.where(_is_negative(sign), -size, size)


@_decomposes(aten.fmax)
def _fmax(first: Tensor, second: Tensor) -> Any:
    first, second = _in_one_type(first, second)
    larger = torch.maximum(first, second)
    return torch.where(first.isnan(), second, torch.where(second.isnan(), first, larger))


@_decomposes(aten.fmin)
def _fmin(first: Tensor, second: Tensor) -> Any:
    first, second = _in_one_type(first, second)
    smaller = torch.minimum(first, second)
    return torch.where(first.isnan(), second, torch.where(second.isnan(), first, smaller))


@_decomposes(aten.hypot)
def _hypot(first: Tensor, second: Tensor) -> Any:
    kind = torch.result_type(first, second)
    squares = [value.double() * value.double() for value in (first, second)]
    infinite = first.isinf() | second.isinf()
    return torch.where(infinite, math.inf, (squares[0] + squares[1]).sqrt()).to(kind)


@_decomposes(aten.remainder)
def _remainder(first: Any, second: Any) -> Any:
    """Compute the remainder with the sign of the divisor, exactly."""
    kind = torch.result_type(first, second)
    if not kind.is_floating_point:
        return NotImplemented
    dividend, divisor = _in_one_type(first, second, wide=True)
    rest = torch.fmod(dividend, divisor)
    differs = (rest != 0) & ((rest < 0) != (divisor < 0))
    return torch.where(differs, rest + divisor, rest).to(kind)


@_decomposes(aten.floor_divide)
def _floor_divide(first: Any, second: Any) -> Any:
    """Divide floats from the exact remainder, so that 1.0 // 0.1 is 9."""
    kind = torch.result_type(first, second)
    if not kind.is_floating_point:
        return NotImplemented
    dividend, divisor = _in_one_type(first, second, wide=True)
    rest = torch.fmod(dividend, divisor)
    quotient = (dividend - rest) / divisor
    goes_down = (rest != 0) & ((rest < 0) != (divisor < 0))
    quotient = torch.where(goes_down, quotient - 1, quotient)
    down = quotient.floor()
    whole = torch.where(quotient - down > 0.5, down + 1, down)
    return torch.where(divisor == 0, dividend / divisor, whole).to(kind)


def _rounded_division(first: Any, second: Any, *, rounding_mode: str | None = None) -> Any:
    return _floor_divide(first, second) if rounding_mode == "floor" else NotImplemented


DECOMPOSITIONS[aten.div.Tensor_mode] = _rounded_division
DECOMPOSITIONS[aten.div.Scalar_mode] = _rounded_division


@_decomposes(aten.pow)
def _power(base: Any, exponent: Any) -> Any:
    """Compute in the type of the result, such as whole numbers for powers of truths."""
    kind = torch.result_type(base, exponent)
    is_other = isinstance(base, Tensor) and base.dtype != kind
    return torch.pow(base.to(kind), exponent) if is_other else NotImplemented


def _in_float32(function: Function) -> Function:
    """Return a decomposition that computes half precision in float32."""

    def compute(value: Tensor, *arguments: Any, **options: Any) -> Any:
        if value.dtype not in (torch.float16, torch.bfloat16):
            return NotImplemented
        wide = [one.float() if _is_half(one) else one for one in (value, *arguments)]
        return function(*wide, **options).to(value.dtype)

    return compute


def _is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)


for _operator in (aten.amax, aten.amin, aten.lerp):
    _decomposes(_operator)(_in_float32(_operator))


@_decomposes(aten.sinc)
def _sinc(value: Tensor) -> Any:
    wide = value.to(_in_one_type(value, 1.0, wide=True)[0].dtype) * math.pi
    kind = torch.result_type(value, 1.0)
    return torch.where(wide == 0, 1.0, wide.sin() / wide).to(kind)


@_decomposes(aten.sign, aten.sgn)
def _sign(value: Tensor) -> Any:
    """Return 0 for NaN. ONNX's operator returns NaN."""
    if not value.dtype.is_floating_point:
        return NotImplemented
    return (value > 0).to(value.dtype) - (value < 0).to(value.dtype)


@_decomposes(aten.signbit)
def _signbit(value: Tensor) -> Any:
    if value.dtype.is_floating_point:
        return _is_negative(value)
    return torch.zeros_like(value) if value.dtype == torch.bool else value < 0


@_decomposes(aten.isfinite)
def _isfinite(value: Tensor) -> Any:
    if not value.dtype.is_floating_point:
        return torch.ones_like(value, dtype=torch.bool)
    return value.abs() < math.inf


@_decomposes(aten.all)
def _all(value: Tensor, *where: Any) -> Any:
    """Return a byte for bytes, as PyTorch does."""
    return torch.all(value != 0, *where).byte() if value.dtype == torch.uint8 else NotImplemented


@_decomposes(aten.any)
def _any(value: Tensor, *where: Any) -> Any:
    return torch.any(value != 0, *where).byte() if value.dtype == torch.uint8 else NotImplemented


@_decomposes(aten.isclose)
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


@_decomposes(aten.cumprod)
def _cumprod(value: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    kind = dtype or (value.dtype if value.dtype.is_floating_point else torch.int64)
    if value.ndim == 0:
        return value.to(kind)
    products: list[Tensor] = []
    for part in value.to(kind).unbind(dim):
        products.append(products[-1] * part if products else part)
    return torch.stack(products, dim) if products else value.to(kind)


@_decomposes(aten.cdist)
def _cdist(first: Tensor, second: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    apart = (first.unsqueeze(-2) - second.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(first.dtype).sum(-1)
    if math.isinf(p):
        return apart.amax(-1)
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    return apart.sum(-1) if p == 1 else apart.pow(p).sum(-1).pow(1 / p)


@_decomposes(aten.kthvalue)
def _kthvalue(value: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, indices = value.sort(dim)
    found = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return found if keepdim else tuple(part.squeeze(dim) for part in found)


@_decomposes(aten.median)
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


@_decomposes(aten.avg_pool2d)
def _average(
    value: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if divisor_override is None:
        return NotImplemented
    size = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** 2
    total = aten.avg_pool2d(value, kernel, stride, padding, ceil_mode, True) * size
    return total / divisor_override


@_decomposes(aten.cross_entropy_loss)
def _cross_entropy(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Compute the loss with smoothing, weights and classes left out. ONNX's has no smoothing."""
    axis = min(1, scores.ndim - 1)
    classes = scores.shape[axis]
    logs = torch.log_softmax(scores, axis)
    weights = torch.ones(classes, dtype=logs.dtype) if weight is None else weight
    spread = weights.reshape(-1, *(1,) * (scores.ndim - axis - 1)) * logs
    if target.dtype.is_floating_point:
        shares = target * (1 - label_smoothing) + label_smoothing / classes
        losses = -(spread * shares).sum(axis)
        total: Any = losses.numel()
    else:
        counts = target != ignore_index
        safe = torch.where(counts, target, 0)
        own = torch.where(counts, weights[safe], 0.0)
        picked = -logs.gather(axis, safe.unsqueeze(axis)).squeeze(axis) * own
        smooth = torch.where(counts, -spread.sum(axis), 0.0)
        losses = (1 - label_smoothing) * picked + label_smoothing / classes * smooth
        total = own.sum()
    return (losses, losses.sum() / total, losses.sum())[reduction]


def _stable_sort(
    value: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    return torch.sort(value, dim, descending)  # ONNX's operator keeps the order of equals


DECOMPOSITIONS[aten.sort.stable] = _stable_sort


@_decomposes(aten.adaptive_max_pool2d)
def _adaptive_max(value: Tensor, output_size: list[int]) -> Any:
    """Compute windows of one size as a pooling, and others one by one."""
    height, width = value.shape[-2:]
    rows, columns = output_size
    if height % rows == 0 and width % columns == 0:
        return torch.nn.functional.max_pool2d(
            value, (height // rows, width // columns), return_indices=True
        )
    found, places = [], []
    for top, bottom in _windows(height, rows):
        for left, right in _windows(width, columns):
            largest, index = value[..., top:bottom, left:right].flatten(-2).max(-1)
            row, column = index // (right - left) + top, index % (right - left) + left
            found.append(largest)
            places.append(row * width + column)
    shape = (*value.shape[:-2], rows, columns)
    return torch.stack(found, -1).reshape(shape), torch.stack(places, -1).reshape(shape)


def _windows(extent: int, count: int) -> list[tuple[int, int]]:
    return [(k * extent // count, -(-(k + 1) * extent // count)) for k in range(count)]


def _counted_from_start(function: Function, place: int) -> Function:
    """Return a translation whose indices, the argument at `place`, may not be negative."""

    def translate(value: Any, *arguments: Any, **options: Any) -> Any:
        given = [value, *arguments]
        axis = given[1] if place == 2 else 0
        extent = int(value.shape[axis])
        indices = given[place]
        given[place] = node(DOMAIN, "FromStart", [indices], extent=extent)
        given[place].type, given[place].shape = indices.type, indices.shape
        return function(*given, **options)

    return translate


TRANSLATIONS: dict[Any, Function] = {
    aten.atan2.default: lambda first, second: node(DOMAIN, "Atan2", [first, second]),
    aten.embedding.default: _counted_from_start(torchlib.aten_embedding, 1),
    aten.erfc.default: lambda value: node(DOMAIN, "Erfc", [value]),
    aten.gather.default: _counted_from_start(torchlib.aten_gather, 2),
    aten.index_select.default: _counted_from_start(torchlib.aten_index_select, 2),
    aten.lgamma.default: lambda value: node(DOMAIN, "Lgamma", [value]),
    aten.scatter.src: _counted_from_start(torchlib.aten_scatter_src, 2),
    aten.scatter.value: _counted_from_start(torchlib.aten_scatter_value, 2),
    aten.scatter_add.default: _counted_from_start(torchlib.aten_scatter_add, 2),
    aten.scatter_reduce.two: _counted_from_start(torchlib.aten_scatter_reduce, 2),
}
"""Translations to ONNX in place of the exporter's. ONNX counts negative indices from the end, and
these operators of PyTorch refuse them."""
