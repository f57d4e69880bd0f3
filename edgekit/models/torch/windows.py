"""Decompositions of poolings, losses and bags of embeddings."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from edgekit.models.torch.decomposing import (
    DECOMPOSITIONS,
    Function,
    aten,
    decomposes,
    is_half,
)


@decomposes(aten.avg_pool2d)
def _average(
    value: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if not value.dtype.is_floating_point:
        options = (kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return aten.avg_pool2d(value.double(), *options).trunc().to(value.dtype)
    if divisor_override is None:
        return NotImplemented
    size = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** 2
    total = aten.avg_pool2d(value, kernel, stride, padding, ceil_mode, True) * size
    return total / divisor_override


@decomposes(aten.conv3d)
def _unbiased(value: Tensor, weight: Tensor, bias: Tensor | None = None, *options: Any) -> Any:
    """Name the bias. The exporter's own, where there is none, has one dimension too many."""
    if bias is not None:
        return NotImplemented
    return aten.conv3d(value, weight, weight.new_zeros(weight.shape[0]), *options)


@decomposes(aten.cross_entropy_loss)
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


@decomposes(aten.adaptive_max_pool2d, aten.adaptive_max_pool3d)
def _adaptive_max(value: Tensor, output_size: list[int]) -> Any:
    """Compute windows of one size as a pooling, and others one by one."""
    extents = value.shape[-len(output_size) :]
    if all(extent % count == 0 for extent, count in zip(extents, output_size, strict=True)):
        sizes = [extent // count for extent, count in zip(extents, output_size, strict=True)]
        pooled = (
            torch.nn.functional.max_pool2d if len(extents) == 2 else torch.nn.functional.max_pool3d
        )
        return pooled(value, sizes, return_indices=True)
    places = torch.arange(math.prod(extents)).reshape(extents)
    found: list[tuple[Tensor, Tensor]] = []
    for window in itertools.product(*map(_windows, extents, output_size)):
        cut = (..., *(slice(*ends) for ends in window))
        largest, index = value[cut].flatten(-len(extents)).max(-1)
        found.append((largest, places[cut].reshape(-1)[index]))
    shape = (*value.shape[: -len(extents)], *output_size)
    first, second = (torch.stack(parts, -1).reshape(shape) for parts in zip(*found, strict=True))
    return first, second


@decomposes(aten._adaptive_avg_pool3d)
def _adaptive_average(value: Tensor, output_size: list[int]) -> Any:
    wide = value.float() if is_half(value) else value
    for axis, count in zip((-3, -2, -1), output_size, strict=True):
        ends = _windows(value.shape[axis], count)
        means = [wide.narrow(axis, left, right - left).mean(axis) for left, right in ends]
        wide = torch.stack(means, axis)
    return wide.to(value.dtype)


@decomposes(aten.native_layer_norm)
def _layer_norm(value: Tensor, *arguments: Any) -> Any:
    """Return mean and deviation in half precision. ONNX's operator returns them in float32."""
    if not is_half(value):
        return NotImplemented
    wide = (each.float() if is_half(each) else each for each in (value, *arguments))
    return tuple(each.to(value.dtype) for each in aten.native_layer_norm(*wide))


@decomposes(aten.soft_margin_loss)
def _soft_margin_loss(value: Tensor, target: Tensor, reduction: int = 1) -> Any:
    """Round each step to half precision, as PyTorch does, which may overflow."""
    if not is_half(value):
        return NotImplemented
    losses = torch.log1p(torch.exp(-value * target))
    return (losses, losses.mean(), losses.sum())[reduction]


@decomposes(aten.embedding_bag, aten._embedding_bag, aten._embedding_bag_forward_only)
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Compute each bag from all rows, those of other bags masked."""
    starts = offsets[:-1] if include_last_offset else offsets
    ends = torch.cat([starts[1:], starts.new_full((1,), indices.shape[0])])
    ends = offsets[1:] if include_last_offset else ends
    places = torch.arange(indices.shape[0], dtype=offsets.dtype)
    inside = (places >= starts.unsqueeze(1)) & (places < ends.unsqueeze(1))
    counts, bags = inside, inside.to(torch.int64).argmax(0).to(offsets.dtype)
    if padding_idx is not None and padding_idx >= 0:
        counts = inside & (indices != padding_idx)
    rows, sizes = weight[indices], counts.sum(1)
    largest = torch.zeros_like(sizes).to(offsets.dtype)
    if mode == 2:
        masked = torch.where(counts.unsqueeze(-1), rows, -math.inf)
        found = torch.where(sizes.unsqueeze(-1) > 0, masked.amax(1), 0.0).to(weight.dtype)
        return found, bags, sizes.to(offsets.dtype), largest
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    wide = rows.float() if is_half(rows) else rows
    total = torch.where(counts.unsqueeze(-1), wide, 0.0).sum(1)
    if mode == 1:
        total = total / sizes.clamp(min=1).unsqueeze(-1).to(total.dtype)
    return total.to(weight.dtype), bags, sizes.to(offsets.dtype), largest


def _windows(extent: int, count: int) -> list[tuple[int, int]]:
    return [(k * extent // count, -(-(k + 1) * extent // count)) for k in range(count)]


def _in_training(operator: Any) -> Function:
    """Return PyTorch's own decomposition for a call that normalises by the batch itself. The
    exporter takes it for one that has learned its mean."""
    decomposition = torch._decomp.decomposition_table[operator]

    def compute(*arguments: Any, **options: Any) -> Any:
        is_training = options.get("training") or any(each is True for each in arguments)
        return decomposition(*arguments, **options) if is_training else NotImplemented

    return compute


for _operator in (
    *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default),
    *(aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_functional.default),
):
    DECOMPOSITIONS[_operator] = _in_training(_operator)
