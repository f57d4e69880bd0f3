"""A use of a TFLite operator as data, and what its model is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from support.tflite_models import Described, Op, T, constant

IMAGE = T("x", (1, 6, 8, 4))


@dataclass(frozen=True, eq=False)
class Case:
    operator: str
    inputs: tuple[T, ...] = (IMAGE,)
    constants: tuple[T, ...] = ()
    results: tuple[str | T, ...] = ("float32",)
    """The types of the results, or whole tensors where a type asks for a quantisation."""
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    dtype: str = "float32"
    """The type that `typed` gave the case; `q` before it stands for quantised numbers."""
    order: tuple[str, ...] = ()
    """The operator's inputs, where they are not `inputs` and `constants` in order."""
    before: tuple[Op, ...] = ()
    """Operators that widen weights."""

    exactness: float = 50
    """Sums add in another order."""

    @property
    def label(self) -> str:
        return f"{self.operator} {self.note}".strip().replace(" ", "-")

    def __str__(self) -> str:
        return f"{self.label}-{self.dtype}"

    def described(self, prefix: str) -> Described:
        """Return the case's part of a model, whose tensors have names with a prefix."""
        results = [
            T(f"r{place}", (), each) if isinstance(each, str) else each
            for place, each in enumerate(self.results)
        ]
        own = [*self.inputs, *self.constants, *results]
        made = {name for one in self.before for name in one.outputs}
        names = list(self.order) or [
            tensor.name for tensor in (*self.inputs, *self.constants) if tensor.name not in made
        ]
        operator = Op(
            self.operator, tuple(names), tuple(each.name for each in results), self.options
        )
        return Described(
            [replace(tensor, name=f"{prefix}{tensor.name}") for tensor in own],
            [_renamed(each, prefix) for each in (*self.before, operator)],
            {f"{prefix}{name}": value for name, value in feeds_for(self).items()},
            [f"{prefix}{each.name}" for each in results],
            {
                f"{prefix}{tensor.name}": _values(tensor, np.random.default_rng(place))
                for place, tensor in enumerate(self.constants)
                if tensor.variable
            },
        )


def _renamed(operator: Op, prefix: str) -> Op:
    return replace(
        operator,
        inputs=tuple(name and f"{prefix}{name}" for name in operator.inputs),
        outputs=tuple(f"{prefix}{name}" for name in operator.outputs),
    )


def feeds_for(case: Case) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    return {tensor.name: _values(tensor, random) for tensor in case.inputs}


def _values(tensor: T, random: np.random.Generator) -> np.ndarray:
    if tensor.dtype == "bool":
        return random.integers(0, 2, tensor.shape).astype("bool")
    if tensor.scale is not None:
        limits = np.iinfo(tensor.dtype)
        return random.integers(limits.min, limits.max + 1, tensor.shape).astype(tensor.dtype)
    if "int" in tensor.dtype:
        return random.integers(0, 3, tensor.shape).astype(tensor.dtype)
    return (random.standard_normal(tensor.shape) * 2).astype(tensor.dtype)


def case(operator: str, *constants: T, **more: Any) -> Case:
    return Case(operator, constants=constants, **more)


def ints(name: str, *values: int) -> T:
    return constant(name, np.array(values, "int32"))


def options(table: str, **fields: Any) -> dict[str, Any]:
    return {"table": table, **fields}


def window(table: str, padding: int, **fields: Any) -> dict[str, Any]:
    return options(table, padding=padding, strideH=2, strideW=1, **fields)


def reducer(keep: bool) -> dict[str, Any]:
    return options("ReducerOptions", keepDims=keep)
