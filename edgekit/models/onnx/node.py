"""A converter's view of one node of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from edgekit.models.onnx.values import Expr, Tensor, Value, as_expr, dtype_of, shape_of


class RefusedError(Exception):
    """Raised with the reason why a node can't be compiled, and a hint."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class NotKnownError(Exception):
    """Raised if an input must be known when the model is imported, and is not."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class Node:
    """A node's inputs as values, its attributes, and a way to emit code."""

    operator: str
    name: str
    opset: int
    """The version of the operator set that the model uses."""
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    """The outputs' names; an empty name is an unused output."""
    attributes: Mapping[str, Any]
    block: relax.BlockBuilder
    repaired: Callable[[str], None]
    """The callback that takes a sentence about a converter's repair."""

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Value:
        return self.inputs[position] if position < len(self.inputs) else None

    def expr(self, position: int) -> Expr:
        """Return the input as a Relax expression."""
        if not self.has(position):
            raise RefusedError(f"input {position} is missing")
        return as_expr(self.inputs[position])

    def known(self, position: int) -> np.ndarray:
        """Return the input's value, which must be known when the model is imported."""
        value = self.value(position)
        if value is None:
            raise RefusedError(f"input {position} is missing")
        if not isinstance(value, np.ndarray):
            raise NotKnownError(position)
        return value

    def known_or(self, position: int, default: Any) -> Any:
        """Return the known value of an input, or `default` if it is left out."""
        return self.known(position) if self.has(position) else default

    def integers(self, position: int) -> tuple[int, ...] | None:
        """Return a known input as a flat tuple of whole numbers; None if it is left out."""
        if not self.has(position):
            return None
        return tuple(int(number) for number in self.known(position).reshape(-1))

    def shape(self, position: int) -> tuple[int, ...]:
        return shape_of(self.inputs[position])

    def dtype(self, position: int) -> str:
        return dtype_of(self.inputs[position])

    def get(self, attribute: str, default: Any = None) -> Any:
        """Return an attribute or its default, rounded to float32 as ONNX's attributes are."""
        rounded = float(np.float32(default)) if isinstance(default, float) else default
        return self.attributes.get(attribute, rounded)

    def wants(self, position: int) -> bool:
        """Tell whether anything reads this output."""
        return position < len(self.outputs) and self.outputs[position] != ""

    def emit(self, expr: Expr) -> Expr:
        """Bind an expression to a variable, so that its shape is known and it is computed once."""
        return self.block.emit(expr)


Outputs: TypeAlias = Tensor | list[Value]
"""One value, or a list with one entry per output."""
Converter: TypeAlias = Callable[[Node], Outputs]
