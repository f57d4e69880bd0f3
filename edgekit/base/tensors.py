"""The description of a tensor: name, dtype, shape, quantisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from edgekit.base.decode import Check, Count

DTYPES = (
    *("float32", "float16", "bfloat16", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
)
"""The types of a model's inputs and outputs."""


@dataclass(frozen=True)
class Quantization:
    """real = scale * (stored - zero_point), per tensor or along `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


def _has_pairs(found: Quantization) -> bool:
    return 0 < len(found.scales) == len(found.zero_points)


@dataclass(frozen=True)
class TensorSpec:
    """A tensor whose dimensions are all known. `dtype` is numpy's name, plus "bfloat16"."""

    name: str
    dtype: Annotated[str, Check(f"one of {', '.join(DTYPES)}", DTYPES.__contains__)]
    shape: tuple[Count, ...]
    quantization: (
        Annotated[Quantization, Check("one zero point for each of its scales", _has_pairs)] | None
    ) = None
    state: str | None = None
    """The output that an input takes in the next call of the model; None for any other tensor."""

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
