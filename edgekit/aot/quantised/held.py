"""Stored values of a model in the rewritten function, and the operations that move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from edgekit.aot.quantised.graph import is_call
from edgekit.aot.quantised.group import to_first
from edgekit.compiler.macs import shape_of


@dataclass(frozen=True, eq=False)
class Held:
    tensor: Any
    """int8."""
    last: bool
    """Whether channels are last where the model has them first."""
    unsigned: bool
    """Whether the model has the values as uint8, 128 more."""


class Mover:
    """Emits moves of stored values, and nothing where a move changes nothing in memory."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def moved(self, held: Held, move: Any) -> Held:
        """Return the values after a reshape or permutation of the model."""
        tensor, shape = held.tensor, shape_of(move)
        if is_call(move, "relax.permute_dims"):
            rank = len(shape)
            given = move.attrs.axes
            axes = [int(axis) % rank for axis in (given or reversed(range(rank)))]
            if held.last:
                axes = [to_first(rank)[axis] for axis in axes]
            return Held(self.permuted(tensor, axes), False, held.unsigned)
        own = shape_of(tensor)
        if held.last and not _is_same_order(own, to_first(len(own))):
            tensor = self.first(held)
        return Held(self._builder.emit(relax.op.reshape(tensor, shape)), False, held.unsigned)

    def first(self, held: Held) -> Any:
        """Return the values in the model's order."""
        if not held.last:
            return held.tensor
        return self.permuted(held.tensor, to_first(len(shape_of(held.tensor))))

    def permuted(self, tensor: Any, axes: Sequence[int]) -> Any:
        shape = shape_of(tensor)
        if tuple(axes) == tuple(range(len(shape))):
            return tensor
        if _is_same_order(shape, axes):
            return self._builder.emit(relax.op.reshape(tensor, tuple(shape[a] for a in axes)))
        return self._builder.emit(relax.op.permute_dims(tensor, list(axes)))

    def shifted(self, tensor: Any, offset: int, dtype: str) -> Any:
        """Convert uint8 to int8, or back."""
        wide = self._builder.emit(relax.op.astype(tensor, "int16"))
        moved = self._builder.emit(relax.op.add(wide, relax.const(offset, "int16")))
        return self._builder.emit(relax.op.astype(moved, dtype))


def _is_same_order(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether a permutation moves nothing in memory: axes of one element move for free."""
    moving = [axis for axis in axes if shape[axis] != 1]
    return moving == sorted(moving)
