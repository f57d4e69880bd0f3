"""Turn operators that move no element into reshapes, such as permutations of axes of length one.

On a machine without a runtime a reshape costs nothing, so none may hide in a loop.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of
from edgekit.compiler.rewriting import operator_of, rewriting

_VIEWS = frozenset(f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten"))


@relax.expr_functor.mutator
class _Views(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name not in _VIEWS and name != "relax.permute_dims":
            return call
        try:
            before, after = shape_of(call.args[0]), shape_of(call)
        except ShapeDependsOnDataError:
            return call
        if name == "relax.permute_dims" and not _moves_nothing(before, call.attrs.axes):
            return call
        return call.args[0] if before == after else relax.op.reshape(call.args[0], after)


def _moves_nothing(shape: tuple[int, ...], axes: Any) -> bool:
    rank = len(shape)
    order = [int(axis) % rank for axis in axes] if axes else list(reversed(range(rank)))
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def views() -> Any:
    return rewriting("Views", _Views)
