"""Other ways of making a step's C: those that are worth measuring on a microcontroller, and those
that measured best."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass

from edgekit.aot.operators import FixedPoint, LoopNest, Operator, Rescale
from edgekit.aot.program import Step

OWN = ""
"""The way that a generator chooses by itself."""

VERSION = 1
"""The version of the ways: raise it when one makes other C, which invalidates measurements."""


@dataclass(frozen=True)
class Way:
    maker: str
    """The generator's name."""
    name: str = OWN
    """The difference from the generator's own choice."""

    @property
    def words(self) -> str:
        return f"{self.maker}, {self.name}" if self.name else self.maker


@dataclass(frozen=True)
class StepWays:
    """One step, who made it, and who else could have."""

    step: str
    key: str
    words: str
    taken: Way
    others: tuple[Way, ...]


def step_key(step: Step) -> str:
    """Return the key of a step: its operator and shapes, the same for other weights and scales."""
    operator: Operator = step.operator
    if isinstance(operator, LoopNest):
        from edgekit.compiler.schedules.kernels import key_of

        shape = key_of(operator.function)
    else:
        shape = _shape_of(operator)
    return hashlib.sha256(f"{type(operator).__name__} {shape}".encode()).hexdigest()[:24]


def way_as_json(way: Way) -> dict[str, object]:
    return {"family": "c", "maker": way.maker, "way": way.name}


def way_from_json(document: Mapping[str, object]) -> Way | None:
    """Return the way; None for a document that is no way of a kernel in C."""
    maker, name = document.get("maker"), document.get("way")
    if document.get("family") != "c" or not isinstance(maker, str) or not isinstance(name, str):
        return None
    return Way(maker, name)


def _shape_of(value: object) -> str:
    if isinstance(value, Rescale):
        return f"rescale {len(value.factors)} {value.rounds_once}"
    if isinstance(value, FixedPoint):
        return "factor"
    if is_dataclass(value):
        parts = (
            f"{field.name}={_shape_of(getattr(value, field.name))}"
            for field in fields(value)
            if field.name not in _DATA
        )
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shape_of, value))})"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return repr(value) if shape is None else f"{dtype}{list(shape)}"


_DATA = frozenset(
    ("zero_point", "low", "high", "scale", "table", "least_difference", "value", "scales")
)
"""Fields that differ between models but not in the code."""
