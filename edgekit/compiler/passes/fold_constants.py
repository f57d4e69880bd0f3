"""Evaluate operators on constants alone with numpy.

TVM's own FoldConstant compiles every such operator with LLVM before it runs it once: minutes for a
network whose weights are reshaped, transposed or dequantised. Operators that the table below lacks
are left for the device, which is slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.rewriting import operator_of, rewriting

if TYPE_CHECKING:
    Arguments = list[np.ndarray]
    Evaluate = Callable[[Arguments, Any, tuple[int, ...]], np.ndarray]

MAX_GROWTH_BYTES = 1 << 20
"""The most bytes by which folding may enlarge a constant, such as a broadcast scalar."""


def _dequantize(arguments: Arguments, attrs: Any, shape: tuple[int, ...]) -> np.ndarray:
    stored, scale, zero_point = arguments
    if scale.ndim == 1:
        broadcast = [1] * stored.ndim
        broadcast[int(attrs.axis)] = -1
        scale = scale.reshape(broadcast)
        zero_point = zero_point.reshape(broadcast if zero_point.ndim == 1 else ())
    real = (stored.astype("int32") - zero_point.astype("int32")).astype(scale.dtype) * scale
    result: np.ndarray = real.astype(str(attrs.out_dtype))
    return result


def _axes(attrs: Any, name: str) -> tuple[int, ...] | None:
    value = getattr(attrs, name)
    return None if value is None else tuple(int(axis) for axis in value)


EVALUATORS: dict[str, Evaluate] = {
    "relax.reshape": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.expand_dims": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.squeeze": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.flatten": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.permute_dims": lambda a, attrs, shape: np.transpose(a[0], _axes(attrs, "axes")),
    "relax.broadcast_to": lambda a, attrs, shape: np.broadcast_to(a[0], shape),
    "relax.astype": lambda a, attrs, shape: a[0].astype(str(attrs.dtype)),
    "relax.dequantize": _dequantize,
    "relax.full": lambda a, attrs, shape: np.full(shape, a[0].reshape(())),
    "relax.add": lambda a, attrs, shape: a[0] + a[1],
    "relax.subtract": lambda a, attrs, shape: a[0] - a[1],
    "relax.multiply": lambda a, attrs, shape: a[0] * a[1],
    "relax.negative": lambda a, attrs, shape: -a[0],
    "relax.sqrt": lambda a, attrs, shape: np.sqrt(a[0]),
}

_FLOAT_ONLY = {"relax.add", "relax.subtract", "relax.multiply", "relax.negative", "relax.sqrt"}
"""Operators that are folded for floats only: integer overflow is undefined in TVM."""


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, keep: AbstractSet[str]) -> None:
        super().__init__(module)
        self._keep = keep

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        evaluate = EVALUATORS.get(operator_of(call))
        if evaluate is None or not isinstance(call.ty, relax.TensorType):
            return call
        if call.op.name in self._keep:
            return call
        arguments = [self._constant(a) for a in call.args if not isinstance(a, relax.ShapeExpr)]
        constants = [argument for argument in arguments if argument is not None]
        shape = _static_shape(call.ty)
        if not constants or len(constants) != len(arguments) or shape is None:
            return call
        if call.op.name in _FLOAT_ONLY and constants[0].dtype.kind != "f":
            return call
        with np.errstate(all="ignore"):
            value = np.asarray(evaluate(constants, call.attrs, shape))
        grown = value.nbytes - sum(argument.nbytes for argument in constants)
        if value.dtype.name != str(call.ty.dtype) or value.shape != shape:
            return call
        if call.op.name != "relax.dequantize" and grown > MAX_GROWTH_BYTES:
            return call
        # Not np.ascontiguousarray, which makes a scalar a vector of one.
        return relax.const(value.copy(order="C"), str(call.ty.dtype))

    def _constant(self, expression: Any) -> np.ndarray | None:
        value = constant_array(expression)
        if value is None and isinstance(expression, relax.Var):
            value = constant_array(self.lookup_binding(expression))
        return value


def _static_shape(tensor_type: Any) -> tuple[int, ...] | None:
    if tensor_type.shape is None:
        return None
    extents = [getattr(extent, "value", extent) for extent in tensor_type.shape]
    if not all(isinstance(extent, int) for extent in extents):
        return None
    return tuple(extents)


def fold_constants(keep: AbstractSet[str] = frozenset()) -> Any:
    """Return the pass. `keep` are operators that stay though their arguments are constants: a
    backend that computes in integers looks for the dequantisation of its weights."""
    return rewriting("FoldConstants", lambda module: _Folder(module, keep))
