"""The view that a rule has of the operators matched by its pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from edgekit.backends.refusal import Refused
from edgekit.base.arrays import Array
from edgekit.base.tvm_compat import constant_array


class Match:
    """The parts of one match, by the names that the rule gave them.

    A method that has no answer refuses the match with a reason, so that a rule needs no checks.
    """

    def __init__(self, parts: Mapping[str, Any], values: Mapping[Any, Any]) -> None:
        self._parts = parts
        self._values = values

    def with_part(self, name: str, expression: Any) -> Match:
        """Return the match with a part from outside the pattern."""
        return Match({**self._parts, name: expression}, self._values)

    def has(self, part: str) -> bool:
        """Tell whether an optional part (one side of an `|`) matched."""
        return part in self._parts

    def expression(self, part: str) -> Any:
        """Return the part's Relax expression."""
        return self._parts[part]

    def value(self, part: str) -> Any:
        """Return the expression that computes the part, behind any variables."""
        expression = self._parts[part]
        while isinstance(expression, relax.Var) and expression in self._values:
            expression = self._values[expression]
        return expression

    def operator(self, part: str) -> str:
        """Return the operator's name, such as `nn.conv2d`."""
        return str(self.value(part).op.name).removeprefix("relax.")

    def attrs(self, part: str) -> Any:
        return self.value(part).attrs

    def arguments(self, part: str) -> tuple[Any, ...]:
        return tuple(self.value(part).args)

    def shape(self, part: str) -> tuple[int, ...]:
        return shape_of(self._parts[part])

    def dtype(self, part: str) -> str:
        return str(self._parts[part].ty.dtype)

    def array(self, part: str) -> Array | None:
        """Return the value of a constant; None for a computed part."""
        array: Array | None = constant_array(self.value(part))
        return array

    def weights(self, part: str) -> Array:
        array = self.array(part)
        if array is None:
            raise Refused(f"its {part} is computed, not constant")
        return array

    def require_float32(self, *parts: str) -> None:
        for part in parts:
            if self.dtype(part) != "float32":
                raise Refused(f"its {part} is {self.dtype(part)}, and the library takes float32")

    def fields(self, part: str) -> tuple[str, ...]:
        """Return the part names of a tuple's fields, such as a concatenation's inputs."""
        return tuple(f"{part}.{index}" for index in range(len(self.value(part).fields)))


def shape_of(expression: Any) -> tuple[int, ...]:
    shape = known_shape(expression.ty)
    if shape is None:
        raise Refused("its shape is known only at run time")
    return shape


def known_shape(kind: Any) -> tuple[int, ...] | None:
    """Return a tensor's shape; None if it is known only at run time or there is no tensor."""
    shape = getattr(kind, "shape", None)
    if shape is None:
        return None
    extents = [getattr(extent, "value", extent) for extent in shape]
    known = tuple(extent for extent in extents if isinstance(extent, int))
    return known if len(known) == len(extents) else None
