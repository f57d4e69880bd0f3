"""Which of the operators that the rules know a library takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.backends.base import Layer, Refused

if TYPE_CHECKING:
    from edgekit.backends.match import Match

Check = Callable[["Match", Layer], Layer]


@dataclass(frozen=True)
class Takes:
    """Curves and operators by their names in TVM, without `relax.`."""

    library: str
    """As messages call it."""
    most_axes: int
    curves: frozenset[str]
    """As layers of their own."""
    fused: frozenset[str]
    """Along with a convolution or a product."""
    fused_sum: frozenset[str]
    """The same where another tensor is added before; empty where that can't be computed along."""
    unary: frozenset[str]
    binary: frozenset[str]
    reductions: frozenset[str]
    others: frozenset[str]
    """Kinds of layers beside those."""
    check: Check | None = None
    """The layer as this library wants it; raises Refused where it has none like that."""

    def checked_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A tensor's shape as the library holds it; a number is an axis of one."""
        if any(extent < 1 for extent in shape):
            raise Refused(f"its shape {list(shape)} has an axis without elements")
        if len(shape) > self.most_axes:
            raise Refused(f"{self.library} holds {self.most_axes} axes, and it has {len(shape)}")
        return tuple(shape) or (1,)

    def shape(self, match: Match, part: str) -> tuple[int, ...]:
        match.require_float32(part)
        return self.checked_shape(match.shape(part))
