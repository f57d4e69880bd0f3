"""The operators that a library takes, of those with a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.backends.base import Layer, Refused
from edgekit.backends.match import Match

Check = Callable[["Match", Layer], Layer]


@dataclass(frozen=True)
class Takes:
    """A library's activations and operators, by their TVM names without `relax.`."""

    library: str
    """The library's name in messages."""
    most_axes: int
    curves: frozenset[str]
    """The activations that are layers of their own."""
    fused: frozenset[str]
    """The activations that can be fused into a convolution or a product."""
    fused_sum: frozenset[str]
    """The activations that can be fused after the addition of another tensor; empty if the addition
    cannot be fused."""
    unary: frozenset[str]
    binary: frozenset[str]
    reductions: frozenset[str]
    others: frozenset[str]
    """The other kinds of layers."""
    check: Check | None = None
    """The function that adapts a layer to this library, or raises Refused."""

    def checked_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a tensor's shape in the library; a scalar gets an axis of one."""
        if any(extent < 1 for extent in shape):
            raise Refused(f"its shape {list(shape)} has an axis without elements")
        if len(shape) > self.most_axes:
            raise Refused(f"{self.library} holds {self.most_axes} axes, and it has {len(shape)}")
        return tuple(shape) or (1,)

    def shape(self, match: Match, part: str) -> tuple[int, ...]:
        match.require_float32(part)
        return self.checked_shape(match.shape(part))
