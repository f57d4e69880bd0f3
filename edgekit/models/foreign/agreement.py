"""Compares a converted model with the original on seeded inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.base.options import option

Run = Callable[[list[Array]], Sequence[Array]]
"""A function from a model's inputs to its outputs."""
SEEDS = (1, 2)
_RELATIVE, _OF_LARGEST = 1e-3, 1e-4


@dataclass(frozen=True)
class Input:
    """An input of a model, its shape known."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def example(self, seed: int) -> Array:
        """Return values that most models take: floats around zero, and indices 0 and 1."""
        random = np.random.default_rng(seed)
        if self.dtype.startswith(("float", "bfloat")):
            return random.uniform(-1, 1, self.shape).astype(self.dtype)
        return random.integers(0, 2, self.shape).astype(self.dtype)


def check_agreement(name: str, inputs: Sequence[Input], original: Run, converted: Run) -> None:
    """Refuse a conversion that changes the outputs by more than roundings."""
    for seed in SEEDS:
        given = [one.example(seed) for one in inputs]
        pairs = zip(original(given), converted(given), strict=True)
        if not all(_agree(*pair) for pair in pairs):
            raise UnsupportedModelError(
                f"{name} gives other numbers once it is converted: its steps depend on values",
                hint="export the model to ONNX from the program that made it",
            )


def missing_shape(path_name: str, name: str) -> ModelError:
    return ModelError(
        f"{path_name} does not hold the shape of its input {name}",
        hint=f"give it, for example: {option('shape', f'{name}=1,3,224,224')}",
    )


def _agree(expected: Array, got: Array) -> bool:
    if expected.shape != got.shape:
        return False
    wide, other = expected.astype("float64"), got.astype("float64")
    finite = np.abs(wide[np.isfinite(wide)])
    allowed = _OF_LARGEST * float(finite.max(initial=0.0)) + 1e-7
    return np.allclose(other, wide, rtol=_RELATIVE, atol=allowed, equal_nan=True)
