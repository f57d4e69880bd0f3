"""The description of a tensor: name, dtype, shape, quantisation."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Quantization:
    """real = scale * (stored - zero_point), per tensor or along `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class TensorSpec:
    """A tensor whose dimensions are all known. `dtype` is numpy's name, plus "bfloat16"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Quantization | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class OpenTensorSpec:
    """A tensor as a model file declares it: a dimension may still be a name, or "?"."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    quantization: Quantization | None = None

    @property
    def open_dimensions(self) -> tuple[int, ...]:
        return tuple(i for i, extent in enumerate(self.shape) if not isinstance(extent, int))
