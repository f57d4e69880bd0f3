"""Turn operators that move no element into reshapes, such as permutations of axes of length one.

On a machine without a runtime a reshape costs nothing, so none may hide in a loop.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of

_VIEWS = frozenset(f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten"))


@relax.expr_functor.mutator
class _Views(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = str(getattr(call.op, "name", ""))
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


@tvm.transform.module_pass(opt_level=0, name="edgekit.Views")
class Views:
    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                module.update_func(variable, _Views(module).visit_expr(function))
        return module
