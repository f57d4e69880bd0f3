"""A rule's view of one node: its inputs, its attributes, and what writes nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import onnx

from edgekit.models.onnx.graph import domain_of
from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, largest
from edgekit.models.onnx.lengths.values import UnfixedError, Value
from edgekit.models.onnx.lengths.writer import Operand, Writer, attributes_of, renamed


@dataclass(frozen=True)
class Step:
    """One node of the model."""

    node: onnx.NodeProto
    inputs: tuple[Value | None, ...]
    outputs: tuple[str, ...]
    """The names that its outputs get in the written graph; empty for one that nothing reads."""
    writer: Writer

    @property
    def opset(self) -> int:
        return self.writer.opsets[domain_of(self.node)]

    @property
    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.node)

    def get(self, attribute: str, default: Any = None) -> Any:
        return self.attributes.get(attribute, default)

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def wants(self, position: int) -> bool:
        return position < len(self.outputs) and self.outputs[position] != ""

    def value(self, position: int = 0) -> Value:
        found = self.inputs[position] if position < len(self.inputs) else None
        if found is None:
            raise UnfixedError(f"its input {position} is missing")
        return found

    def content(self, position: int) -> list[Size]:
        """Return a known input as a flat list of sizes."""
        value = self.value(position)
        if value.content is None:
            raise UnfixedError(
                f"its input {self.node.input[position]!r} decides a size, and is computed from data"
            )
        return [x if value.is_symbolic else int(x) for x in value.content.reshape(-1).tolist()]

    def integers(self, position: int) -> list[int]:
        """Return a known input without sizes that vary."""
        found = self.content(position)
        if not all(isinstance(item, int) for item in found):
            raise UnfixedError(f"its input {self.node.input[position]!r} varies")
        return [int(str(item)) for item in found]

    def axes(self, position: int, rank: int) -> list[int] | None:
        """Return axes, which are an attribute in old operator sets; None if none are given."""
        found = self.get("axes")
        if found is None and self.has(position):
            found = self.integers(position)
        return None if found is None else [axis % rank for axis in found]

    def axis(self, default: int, rank: int) -> int:
        return int(self.get("axis", default)) % max(rank, 1)

    def again(self, *inputs: Operand, **changed: Any) -> list[Value]:
        """Write the node with other inputs, and perhaps other attributes."""
        node = renamed(self.node, [self.writer.named(one) for one in inputs], self.outputs)
        if changed:
            kept = [one for one in node.attribute if one.name not in changed]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.attribute.extend(
                onnx.helper.make_attribute(key, value)
                for key, value in changed.items()
                if value is not None
            )
        return self.writer.add(node)

    def shaped(
        self,
        value: Value,
        shape: Sequence[Size],
        zeros: frozenset[int] = frozenset(),
        buffer: Sequence[int] | None = None,
    ) -> Value:
        """Say which true shape a written value has."""
        room = tuple(value.buffer if buffer is None else buffer)
        if value.shape is None and buffer is None:
            raise UnfixedError("nothing says which shape its output has")
        found = replace(value, shape=tuple(shape), buffer=room, zeros=zeros)
        if len(room) != len(found.sizes) or any(
            largest(size) > extent for size, extent in zip(found.sizes, room, strict=True)
        ):
            raise UnfixedError(f"its output of the shape {_text(shape)} was given {list(room)}")
        self.writer.values[value.name] = found
        return buffers.tight(self.writer, found)

    def masked(self, position: int, axes: Sequence[int], fill: Any = 0) -> Value:
        return buffers.masked(self.writer, self.value(position), axes, fill)

    def fixed_at(self, position: int, axes: Sequence[int], why: str) -> None:
        """Refuse dimensions that vary."""
        value = self.value(position)
        for axis in axes:
            if axis in value.padded:
                raise UnfixedError(
                    f"dimension {axis} of {self.node.input[position]!r} varies, {why}"
                )


Rule: TypeAlias = Callable[[Step], "Value | list[Value] | None"]
"""Writes a node; None if it is to be written out in simpler operators, as ONNX defines it."""
Rules: TypeAlias = "dict[str, Rule]"


def _text(shape: Sequence[Size]) -> str:
    return f"[{', '.join(map(str, shape))}]"
