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
class Range:
    """The sizes that a dimension of an input may have, both included."""

    smallest: int
    largest: int
    name: str = ""
    """The name that dimensions share if their sizes are always equal; empty if nothing says it."""

    def __str__(self) -> str:
        sizes = f"{self.smallest}..{self.largest}"
        return f"({self.name}:{sizes})" if self.name else f"({sizes})"


@dataclass(frozen=True)
class Varying:
    """A dimension whose size differs from run to run. The tensor's shape has the largest size."""

    dimension: Count
    smallest: Count
    length: str
    """The int64 scalar, an input or output of the program, that holds the size in a run."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor whose dimensions are all known. `dtype` is numpy's name, plus "bfloat16".

    A dimension that varies has its largest size in `shape`.
    """

    name: str
    dtype: Annotated[str, Check(f"one of {', '.join(DTYPES)}", DTYPES.__contains__)]
    shape: tuple[Count, ...]
    quantization: (
        Annotated[Quantization, Check("one zero point for each of its scales", _has_pairs)] | None
    ) = None
    state: str | None = None
    """The output that an input takes in the next call of the model; None for any other tensor."""
    varying: tuple[Varying, ...] = ()
    """The dimensions whose size differs from run to run, in the order of the shape."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def is_within(self, least: int) -> bool:
        """Return whether what varies has a place in the shape, and sizes from `least` upwards."""
        dimensions = [one.dimension for one in self.varying]
        return dimensions == sorted(set(dimensions)) and all(
            one.dimension < len(self.shape) and least <= one.smallest <= self.shape[one.dimension]
            for one in self.varying
        )

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor of this shape is one of these."""
        smallest = {one.dimension: one.smallest for one in self.varying}
        return len(shape) == len(self.shape) and all(
            smallest.get(i, largest) <= extent <= largest
            for i, (extent, largest) in enumerate(zip(shape, self.shape, strict=True))
        )

    def shape_in_words(self) -> str:
        """Return the shape as a list, with a range for each dimension that varies."""
        return f"[{', '.join(map(str, self.opened().shape))}]"

    def opened(self) -> OpenTensorSpec:
        """Return the tensor with the range of each dimension that varies in words."""
        shape: list[int | str] = list(self.shape)
        for one in self.varying:
            shape[one.dimension] = f"{one.smallest}..{self.shape[one.dimension]}"
        return OpenTensorSpec(self.name, self.dtype, tuple(shape), self.quantization)

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape_in_words()}"


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
