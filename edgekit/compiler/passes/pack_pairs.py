"""Turn products of two computed matrices into kernels of `compiler/schedules/pair.py`.

A transposition of either matrix is read through instead of computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of
from edgekit.compiler.rewriting import is_call, rewriting
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.pair import pair, worth_packing
from edgekit.compiler.schedules.tiles import choose_tile

_FUSES_WHAT_FOLLOWS = {"op_pattern": 4}


@relax.expr_functor.mutator
class _Pairs(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, machine: Machine) -> None:
        super().__init__(module)
        self._machine = machine

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.matmul"):
            return call
        if any(constant_array(argument) is not None for argument in call.args):
            return call
        try:
            first, second, shape = (shape_of(e) for e in (*call.args, call))
        except ShapeDependsOnDataError:
            return call
        if min(len(first), len(second)) < 2 or first[:-2] != second[:-2] or 0 in shape:
            return call  # a vector has no rows to pack
        if any(str(e.ty.dtype) != "float32" for e in (*call.args, call)):
            return call
        if not worth_packing(shape, first[-1]):
            return call
        tile = choose_tile(1, shape[-2], shape[-1], first[-1], self._machine)
        (one, order), (two, other) = (self._as_it_lies(argument) for argument in call.args)
        return self.builder_.call_te(
            lambda a, b: pair(a, b, (order, other), tile),
            one,
            two,
            primfunc_name_hint="product_of_two",
            primfunc_attrs=_FUSES_WHAT_FOLLOWS,
        )

    def _as_it_lies(self, matrix: Any) -> tuple[Any, Sequence[int]]:
        """Return the operand of a transposition and its order of axes, or the matrix itself."""
        rank = len(shape_of(matrix))
        value: Any = self.lookup_binding(matrix) if isinstance(matrix, relax.Var) else None
        if is_call(value, "relax.permute_dims"):
            axes = value.attrs.axes
            order = [int(axis) % rank for axis in axes] if axes else list(range(rank))[::-1]
            return value.args[0], order
        return matrix, list(range(rank))


def pack_pairs(machine: Machine) -> Any:
    return rewriting("PackPairs", lambda module: _Pairs(module, machine))
