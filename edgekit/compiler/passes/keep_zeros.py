"""IEEE float arithmetic where TVM's simplifier assumes real numbers.

TVM's simplifier makes 0 of a product with 0 and of a quotient of 0, whatever the other operand is
(NaN, infinity, zero), fails on a division by 0, and makes "false" of `x != x`. It does so only for
numbers that it sees. A zero in memory is hidden from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.rewriting import operator_of, rewriting

_QUOTIENTS = ("relax.divide", "relax.floor_divide", "relax.mod", "relax.floor_mod")
_WITH_ZERO = ("relax.multiply", *_QUOTIENTS)
_SAME = {"relax.equal": False, "relax.not_equal": True}
_FILLED = ("relax.full", "relax.full_like")
_ZEROS = ("relax.zeros", "relax.zeros_like")
_MOVED = (
    "relax.broadcast_to",
    "relax.reshape",
    "relax.expand_dims",
    "relax.squeeze",
    "relax.astype",
)


def keep_zeros() -> Any:
    """Return the pass that puts zeros that floats are multiplied with or divided by into memory. It
    runs last before operators become loop nests."""
    return rewriting("KeepZeros", _Rewriter)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name in _SAME and _is_float(call.args[0]) and call.args[0].same_as(call.args[1]):
            unequal = relax.op.isnan(call.args[0])
            return unequal if _SAME[name] else relax.op.logical_not(self.builder_.emit(unequal))
        if name not in _WITH_ZERO:
            return call
        if not _is_float(call.args[0]):
            if name in _QUOTIENTS and self._zero(call.args[1]) is not None:
                raise UnsupportedModelError(
                    "the model divides whole numbers by zero",
                    hint="export the model again, with another divisor",
                )
            return call
        zeros = [self._zero(argument) for argument in call.args]
        if zeros == [None, None]:
            return call
        return self._in_memory(call, zeros)

    def _in_memory(self, call: Any, zeros: list[float | None]) -> Any:
        rank = len(call.ty.shape)
        arguments = []
        for argument, zero in zip(call.args, zeros, strict=True):
            if zero is not None:
                shape = [int(extent) for extent in argument.ty.shape] or [1]
                stored = np.full([1] * len(shape), zero)
                if any(extent != 1 for extent in shape):  # else the result's shape would change
                    argument = self._spread(argument, stored, shape)
                else:
                    argument = relax.const(stored, str(argument.ty.dtype))
            arguments.append(argument)
        result = relax.Call(call.op, arguments, call.attrs)
        if rank:
            return result
        return relax.op.reshape(self.builder_.emit(result), ())

    def _spread(self, argument: Any, stored: np.ndarray, shape: list[int]) -> Any:
        constant = relax.const(stored, str(argument.ty.dtype))
        return self.builder_.emit(relax.op.broadcast_to(constant, shape))

    def _zero(self, argument: Any) -> float | None:
        """Return the zero, with its sign, that TVM would see as a number everywhere."""
        for _ in range(64):
            array = constant_array(argument)
            if array is not None:
                if array.size != 1 or np.asarray(array, "float64").reshape(-1)[0] != 0:
                    return None
                return float(np.copysign(0.0, np.asarray(array, "float64").reshape(-1)[0]))
            if isinstance(argument, relax.Var):
                argument = self.lookup_binding(argument)
                continue
            name = operator_of(argument)
            if name in _ZEROS:
                return 0.0
            if name in _FILLED:
                argument = argument.args[1]
            elif name in _MOVED:
                argument = argument.args[0]
            else:
                return None
        return None


def _is_float(value: Any) -> bool:
    return "float" in str(value.ty.dtype)
