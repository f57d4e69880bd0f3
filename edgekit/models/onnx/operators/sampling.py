"""The sources of the pixels of a resized axis, in numpy, since every size is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Taps:
    """The old positions, and their weights, that sum to each position of the new axis."""

    indices: np.ndarray
    """The old positions: [new, taps]."""
    weights: np.ndarray
    """Their weights: [new, taps]; rows add up to one."""
    outside: np.ndarray
    """Whether a position is outside the image and takes the extrapolation value: [new]."""

    def matrix(self, extent: int) -> np.ndarray:
        """Return the taps as a matrix [new, old]."""
        dense = np.zeros((len(self.indices), extent))
        for column in range(self.indices.shape[1]):
            np.add.at(
                dense,
                (np.arange(len(self.indices)), self.indices[:, column]),
                self.weights[:, column],
            )
        return dense


@dataclass(frozen=True)
class Method:
    """The attributes of ONNX's Resize."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def taps(
    method: Method,
    extent: int,
    output: int,
    scale: float,
    region: tuple[float, float] = (0.0, 1.0),
) -> Taps:
    places = positions(method.coordinates, extent, output, scale, region)
    crops = method.coordinates == "tf_crop_and_resize"
    outside = (places < 0) | (places > extent - 1) if crops else np.zeros(output, bool)
    if method.mode == "nearest":
        nearest = np.clip(_rounded(places, method.nearest), 0, extent - 1).astype(np.int64)
        return Taps(nearest[:, None], np.ones((output, 1)), outside)
    if method.mode == "linear" and not method.antialias:
        places = np.clip(places, 0, extent - 1)  # onnxruntime reads the next pixel, times zero
    radius = 1 if method.mode == "linear" else 2
    stretch = min(scale, 1.0) if method.antialias else 1.0
    reach = math.ceil(radius / stretch)
    indices = np.floor(places)[:, None] + np.arange(1 - reach, reach + 1)
    distances = np.abs(indices - places[:, None]) * stretch
    if method.mode == "linear":
        weights = np.clip(1 - distances, 0, 1)
    else:
        weights = _cubic(distances, method.cubic_coefficient)
    if method.exclude_outside:
        weights = np.where((indices < 0) | (indices >= extent), 0.0, weights)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return Taps(np.clip(indices, 0, extent - 1).astype(np.int64), weights, outside)


def positions(
    coordinates: str, extent: int, output: int, scale: float, region: tuple[float, float]
) -> np.ndarray:
    """Return the coordinate of each new position along the old axis.

    In float32, as onnxruntime computes it: a place that is whole but for a rounding decides which
    pixels are read, and NaN comes through a weight of 1e-7 as through any other.
    """
    new: np.ndarray = np.arange(output, dtype=np.float32)
    exact, step = scale * extent, np.float32(scale)
    if coordinates == "align_corners":
        return np.zeros(output) if exact == 1 else new * (extent - 1) / (exact - 1)
    if coordinates == "asymmetric":
        return np.asarray(new / step)
    if coordinates == "tf_crop_and_resize":
        start, end = region
        span = (end - start) * (extent - 1)
        inner = np.full(output, span / 2) if exact == 1 else new * span / (exact - 1)
        return inner + start * (extent - 1)
    if coordinates == "pytorch_half_pixel" and exact == 1:
        return np.full(output, -0.5)
    if coordinates == "half_pixel_symmetric":
        offset = np.float32(extent / 2) * (1 - np.float32(output) / (step * np.float32(extent)))
        exact_place = float(offset) + (new.astype(np.float64) + 0.5) / float(step) - 0.5
        return exact_place.astype(np.float32)
    return np.asarray((new + np.float32(0.5)) / step - np.float32(0.5))


def _rounded(places: np.ndarray, mode: str) -> np.ndarray:
    rounded: np.ndarray
    if mode == "floor":
        rounded = np.floor(places)
    elif mode == "ceil":
        rounded = np.ceil(places)
    elif mode == "round_prefer_ceil":
        rounded = np.floor(places + 0.5)
    else:
        rounded = np.ceil(places - 0.5)
    return rounded


def _cubic(distances: np.ndarray, a: float) -> np.ndarray:
    d = distances
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
