"""Evaluate operators on constants alone with numpy.

TVM's own FoldConstant compiles every such operator with LLVM before it runs it once: minutes for a
network whose weights are reshaped, transposed or dequantised. Operators that the table below lacks
are left for the device, which is slower, never wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax
from tvm.tirx import IntImm

from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.rewriting import operator_of, rewriting

if TYPE_CHECKING:
    Arguments = list[Any]
    """Arrays, tuples of arrays, and tuples of integers."""
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


def _slice(arguments: Arguments, attrs: Any, shape: tuple[int, ...]) -> np.ndarray:
    data, axes, begins, ends, *steps = arguments
    del attrs, shape
    parts = [slice(None)] * data.ndim
    for place, axis in enumerate(axes):
        step = steps[0][place] if steps else 1
        parts[axis] = slice(begins[place], ends[place], step)
    found: np.ndarray = data[tuple(parts)]
    return found


def _joined(join: Callable[..., np.ndarray]) -> Evaluate:
    return lambda a, attrs, shape: join(a[0], axis=0 if attrs.axis is None else int(attrs.axis))


def _take(arguments: Arguments, attrs: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Take elements; importers have checked constant indices and count them from the start."""
    data, places = arguments
    del shape
    found: np.ndarray = np.take(data, places, axis=None if attrs.axis is None else int(attrs.axis))
    return found


EVALUATORS: dict[str, Evaluate] = {
    "relax.reshape": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.expand_dims": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.squeeze": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.flatten": lambda a, attrs, shape: a[0].reshape(shape),
    "relax.permute_dims": lambda a, attrs, shape: np.transpose(a[0], _axes(attrs, "axes")),
    "relax.broadcast_to": lambda a, attrs, shape: np.broadcast_to(a[0], shape),
    "relax.astype": lambda a, attrs, shape: a[0].astype(str(attrs.dtype)),
    "relax.strided_slice": _slice,
    "relax.take": _take,
    "relax.concat": _joined(np.concatenate),
    "relax.stack": _joined(np.stack),
    "relax.dequantize": _dequantize,
    "relax.full": lambda a, attrs, shape: np.full(shape, a[0].reshape(())),
    "relax.add": lambda a, attrs, shape: a[0] + a[1],
    "relax.subtract": lambda a, attrs, shape: a[0] - a[1],
    "relax.multiply": lambda a, attrs, shape: a[0] * a[1],
    "relax.negative": lambda a, attrs, shape: -a[0],
    "relax.sqrt": lambda a, attrs, shape: np.sqrt(a[0]),
    "relax.matmul": lambda a, attrs, shape: np.matmul(a[0], a[1]),
}

_FLOAT_ONLY = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "negative", "sqrt", "matmul")
)
"""Operators that are folded for floats only: integer overflow is undefined in TVM."""


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, keep: AbstractSet[str]) -> None:
        super().__init__(module)
        self._keep = keep
        self._folded: dict[object, Any] = {}
        """What was folded, by operator and arguments: an unrolled recurrent layer takes the same
        slice of its weights in every step."""
        self._digests: dict[int, bytes] = {}

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        evaluate = EVALUATORS.get(operator_of(call))
        if evaluate is None or not isinstance(call.ty, relax.TensorType):
            return call
        if call.op.name in self._keep:
            return call
        arguments = [self._value(a) for a in call.args if not isinstance(a, relax.ShapeExpr)]
        shape = _static_shape(call.ty)
        if not arguments or any(argument is None for argument in arguments) or shape is None:
            return call
        arrays = [array for one in arguments for array in _arrays(one)]
        if call.op.name in _FLOAT_ONLY and arrays[0].dtype.kind != "f":
            return call
        key = (call.op.name, str(call.attrs), *map(self._identity, call.args))
        if key not in self._folded:
            self._folded[key] = self._evaluated(call, evaluate, arguments, shape)
        return call if self._folded[key] is None else self._folded[key]

    def _evaluated(
        self, call: Any, evaluate: Evaluate, arguments: Arguments, shape: tuple[int, ...]
    ) -> Any:
        """Return the result as a constant; None if it should be computed on the device."""
        with np.errstate(all="ignore"):
            value = np.asarray(evaluate(arguments, call.attrs, shape))
        given = sum(array.nbytes for one in arguments for array in _arrays(one))
        if value.dtype.name != str(call.ty.dtype) or value.shape != shape:
            return None
        if call.op.name != "relax.dequantize" and value.nbytes - given > MAX_GROWTH_BYTES:
            return None
        # Not np.ascontiguousarray, which makes a scalar a vector of one.
        return as_constant(value.copy(order="C"))

    def _identity(self, expression: Any) -> object:
        """Return what is equal for equal constants alone."""
        if isinstance(expression, relax.Tuple):
            return tuple(map(self._identity, expression.fields))
        if isinstance(expression, relax.Var) and self.lookup_binding(expression) is not None:
            return self._identity(self.lookup_binding(expression))
        array = constant_array(expression)
        if array is None:
            return str(expression)
        handle = expression.__chandle__()
        if handle not in self._digests:
            self._digests[handle] = hashlib.blake2b(array.tobytes()).digest()
        return self._digests[handle], array.shape, array.dtype.name

    def _value(self, expression: Any) -> Any:
        """Return the value of a constant argument; None for any other."""
        if isinstance(expression, relax.Var) and constant_array(expression) is None:
            expression = self.lookup_binding(expression)
        if isinstance(expression, relax.Tuple):
            values = [self._value(field) for field in expression.fields]
            return None if any(value is None for value in values) else tuple(values)
        if isinstance(expression, IntImm):
            return int(expression.value)
        return constant_array(expression)


def _arrays(value: Any) -> list[np.ndarray]:
    parts = value if isinstance(value, tuple) else (value,)
    return [part for part in parts if isinstance(part, np.ndarray)]


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
