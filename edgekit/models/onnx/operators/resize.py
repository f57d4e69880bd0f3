"""Resize and Upsample, in every version and mode.

Sizes are known, so the source of each pixel is computed on import. The plain cases become
`relax.image.resize2d`, which backends recognise; the others become gathers and weighted sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, positive_axis, take_at
from edgekit.models.onnx.operators.sampling import Method, Taps, taps
from edgekit.models.onnx.values import Expr, as_expr, constant, dtype_of, is_float, shape_of

op = relax.op
MOST_GATHERED = 4
"""The most taps to gather; more are cheaper as a matrix product."""


@dataclass(frozen=True)
class Axis:
    """The resize of one axis."""

    output: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def _resize(node: Node) -> Outputs:
    value = node.expr(0)
    if node.opset < 11:
        method = Method(node.get("mode", "nearest"), "asymmetric", "floor")
        scales = node.known(1).reshape(-1) if node.has(1) else np.array(node.get("scales"))
        return resized(node, value, method, _scaled(shape_of(value), scales, None), 0.0)
    method = Method(
        node.get("mode", "nearest"),
        node.get("coordinate_transformation_mode", "half_pixel"),
        node.get("nearest_mode", "round_prefer_floor"),
        node.get("cubic_coeff_a", -0.75),
        bool(node.get("exclude_outside", 0)),
        bool(node.get("antialias", 0)),
    )
    return resized(node, value, method, _axes(node), node.get("extrapolation_value", 0.0))


def _axes(node: Node) -> list[Axis]:
    """Return the resize of each axis. Empty inputs count as left out, as opset 11 requires."""
    shape = node.shape(0)
    places = [positive_axis(axis, len(shape)) for axis in node.get("axes", range(len(shape)))]
    region = None
    if node.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        given = node.known(1).reshape(-1)
        region = {p: (given[i], given[i + len(places)]) for i, p in enumerate(places)}
    if any(node.has(i) and not node.known(i).size for i in (1, 2)):
        node.repaired("empty inputs of Resize were read as left out, as opset 11 writes them")
    if node.has(2) and node.known(2).size:
        scales = np.ones(len(shape))
        scales[places] = node.known(2).reshape(-1)
        return _scaled(shape, scales, region)
    sizes = node.integers(3)
    if not sizes:
        raise RefusedError("it has neither sizes nor scales")
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    ratios = [size / shape[place] for size, place in zip(sizes, places, strict=True)]
    result = [
        Axis(extent, 1.0, (region or {}).get(i, (0.0, 1.0))) for i, extent in enumerate(shape)
    ]
    for place, size, ratio in zip(places, sizes, ratios, strict=True):
        if policy != "stretch":
            ratio = (min if policy == "not_larger" else max)(ratios)
            size = math.floor(ratio * shape[place] + 0.5)
        result[place] = Axis(size, ratio, result[place].region)
    return result


def _scaled(
    shape: tuple[int, ...], scales: np.ndarray, region: dict[int, tuple[float, float]] | None
) -> list[Axis]:
    return [
        Axis(math.floor(extent * float(scale)), float(scale), (region or {}).get(i, (0.0, 1.0)))
        for i, (extent, scale) in enumerate(zip(shape, scales, strict=True))
    ]


def resized(
    node: Node, value: Expr, method: Method, axes: list[Axis], extrapolation: float
) -> Expr:
    shape, dtype = shape_of(value), dtype_of(value)
    if 0 in shape or any(axis.output == 0 for axis in axes):
        return op.zeros(tuple(axis.output for axis in axes), dtype)
    if _is_plain(method, shape, axes, dtype):
        return _resize2d(value, method, axes)
    changes = method.mode != "nearest"
    if changes and dtype != "float32" and dtype != "float64":
        value = node.emit(cast(value, "float32"))
    outside = np.zeros(tuple(axis.output for axis in axes), bool)
    for place, axis in enumerate(axes):
        wanted = taps(method, shape[place], axis.output, axis.scale, axis.region)
        if axis.output == shape[place] and axis.scale == 1.0 and not wanted.outside.any():
            continue
        value = node.emit(_apply(node, value, place, wanted))
        outside |= wanted.outside.reshape(tuple(-1 if i == place else 1 for i in range(len(shape))))
    if outside.any():
        filler = constant(extrapolation, dtype_of(value))
        value = node.emit(op.where(as_expr(outside), filler, value))
    if changes and not is_float(dtype) and dtype_of(value) != dtype:
        limits = np.iinfo(dtype)
        value = op.clip(op.round(value), float(limits.min), float(limits.max))
        return op.astype(value, dtype)
    return cast(value, dtype)


def _apply(node: Node, value: Expr, place: int, wanted: Taps) -> Expr:
    rank, dtype = len(shape_of(value)), dtype_of(value)
    count = wanted.indices.shape[1]
    if count == 1:
        return take_at(value, as_expr(wanted.indices[:, 0]), axis=place)
    if count > MOST_GATHERED:
        matrix = wanted.matrix(shape_of(value)[place]).T.astype(dtype)
        order = [i for i in range(rank) if i != place] + [place]
        back = [order.index(i) for i in range(rank)]
        product = op.matmul(op.permute_dims(value, order), as_expr(np.ascontiguousarray(matrix)))
        return op.permute_dims(product, back)
    total = None
    for column in range(count):
        weights = wanted.weights[:, column].astype(dtype)
        shaped = weights.reshape(tuple(-1 if i == place else 1 for i in range(rank)))
        picked = take_at(value, as_expr(wanted.indices[:, column].copy()), axis=place)
        term = op.multiply(picked, as_expr(shaped))
        total = term if total is None else op.add(total, term)
    return total


_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _is_plain(method: Method, shape: tuple[int, ...], axes: list[Axis], dtype: str) -> bool:
    """Tell whether `resize2d` computes exactly this."""
    if len(shape) != 4 or dtype != "float32" or method.antialias or method.exclude_outside:
        return False
    if any(axis.output != e for axis, e in zip(axes[:2], shape[:2], strict=True)):
        return False
    if any(
        axis.output != axis.scale * extent for axis, extent in zip(axes[2:], shape[2:], strict=True)
    ):
        return False
    if method.mode == "nearest":
        # The kernel rounds in float32, so only whole factors are safe.
        whole = all(float(axis.scale).is_integer() for axis in axes[2:])
        return whole and (method.coordinates, method.nearest) in _SAFE_NEAREST
    if method.coordinates == "align_corners" and any(axis.output == 1 for axis in axes[2:]):
        return False  # the kernel divides by the steps between pixels
    return method.mode == "linear" and method.coordinates in _COORDINATES


_SAFE_NEAREST = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}


def _resize2d(value: Expr, method: Method, axes: list[Axis]) -> Expr:
    """Emit `resize2d`: with whole factors, all safe roundings equal `asymmetric` with `floor`."""
    size = (axes[2].output, axes[3].output)
    if method.mode == "nearest":
        return op.image.resize2d(
            value,
            size,
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
    return op.image.resize2d(
        value,
        size,
        method="linear",
        coordinate_transformation_mode=method.coordinates,
        rounding_method="",
    )


RESIZE: Converters = {"Resize": _resize, "Upsample": _resize}
