"""The values on the edges of a graph while its sizes are fixed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgekit.base.arrays import Array
from edgekit.models.onnx.lengths.extents import Size, largest


class UnfixedError(Exception):
    """Raised with the reason why a node can't be given fixed sizes."""


@dataclass(eq=False)
class Value:
    """A tensor: its true shape, and that of the buffer with its elements at the start."""

    name: str
    """The name in the graph that is written; empty if only the content is known so far."""
    element: int
    """ONNX's number of the type of the elements; 0 if it is unknown."""
    shape: tuple[Size, ...] | None
    """The true shape; None if it is unknown."""
    buffer: tuple[int, ...] = ()
    """The shape of the buffer, which is nowhere smaller."""
    zeros: frozenset[int] = field(default_factory=frozenset)
    """The dimensions beyond whose end the buffer holds zeros."""
    content: Array | None = None
    """The elements, where they are known: numbers, or an array of objects with sizes in it."""
    wish: str = ""
    """The name for a value that has none yet."""

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Return the true shape; `UnfixedError` if it is unknown."""
        if self.shape is None:
            raise UnfixedError(f"nothing says which shape {(self.name or self.wish)!r} has")
        return self.shape

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def padded(self) -> tuple[int, ...]:
        """Return the dimensions whose buffer may hold more than the tensor."""
        if self.shape is None:
            return ()
        pairs = zip(self.shape, self.buffer, strict=True)
        return tuple(i for i, (size, room) in enumerate(pairs) if size != room)

    @property
    def is_symbolic(self) -> bool:
        return self.content is not None and self.content.dtype == object

    @property
    def is_plain(self) -> bool:
        """Tell whether an operator can take the value as it does without lengths."""
        return not self.padded and not self.is_symbolic


def known(content: Array, element: int, wish: str = "") -> Value:
    """Return a value whose elements are known."""
    return Value(
        "", element, tuple(content.shape), tuple(content.shape), content=content, wish=wish
    )


def rooms(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """Return the shape of the smallest buffer for tensors of this shape."""
    return tuple(max(largest(size), 0) for size in shape)


def simplified(content: Array) -> Array:
    """Return an array of objects as one of integers if it holds no size that varies."""
    if content.dtype == object and all(isinstance(item, int) for item in content.reshape(-1)):
        return content.astype(np.int64)
    return content
