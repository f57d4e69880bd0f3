"""One node of the graph in the hands of its converter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from edgekit.models.onnx.values import Expr, Tensor, Value, as_expr, dtype_of, shape_of


class RefusedError(Exception):
    """Why this node can't be compiled, and what would help."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class NotKnownError(Exception):
    """An input has to be known when the model is imported, and is not."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class Node:
    """What a converter sees: its inputs as values, its attributes, and a way to emit code."""

    operator: str
    name: str
    opset: int
    """The version of the operator set the model asks for."""
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    """Names; an empty one is an output that nobody asked for."""
    attributes: Mapping[str, Any]
    block: relax.BlockBuilder
    repaired: Callable[[str], None]
    """Takes a sentence about what the converter mends."""

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Value:
        return self.inputs[position] if position < len(self.inputs) else None

    def expr(self, position: int) -> Expr:
        """The input as a Relax expression."""
        if not self.has(position):
            raise RefusedError(f"input {position} is missing")
        return as_expr(self.inputs[position])

    def known(self, position: int) -> np.ndarray:
        """The input's value, which must be known when the model is imported."""
        value = self.value(position)
        if value is None:
            raise RefusedError(f"input {position} is missing")
        if not isinstance(value, np.ndarray):
            raise NotKnownError(position)
        return value

    def known_or(self, position: int, default: Any) -> Any:
        """The known value of an input, or `default` where it is left out."""
        return self.known(position) if self.has(position) else default

    def integers(self, position: int) -> tuple[int, ...] | None:
        """A known input as a flat tuple of whole numbers; None where it is left out."""
        if not self.has(position):
            return None
        return tuple(int(number) for number in self.known(position).reshape(-1))

    def shape(self, position: int) -> tuple[int, ...]:
        return shape_of(self.inputs[position])

    def dtype(self, position: int) -> str:
        return dtype_of(self.inputs[position])

    def get(self, attribute: str, default: Any = None) -> Any:
        """An attribute, or its default, rounded as ONNX's attributes are: to float32."""
        rounded = float(np.float32(default)) if isinstance(default, float) else default
        return self.attributes.get(attribute, rounded)

    def wants(self, position: int) -> bool:
        """Whether anything reads this output."""
        return position < len(self.outputs) and self.outputs[position] != ""

    def emit(self, expr: Expr) -> Expr:
        """Bind an expression to a variable, so that its shape is known and it is computed once."""
        return self.block.emit(expr)


Outputs: TypeAlias = Tensor | list[Value]
"""One value, or a list with one entry an output."""
Converter: TypeAlias = Callable[[Node], Outputs]
