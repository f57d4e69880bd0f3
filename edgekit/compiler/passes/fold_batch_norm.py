"""Fold inference-time batch normalisation into the convolution before it, or into one
multiply-add where there is none.

    y = gamma * (x - mean) / sqrt(variance + epsilon) + beta  =  a * x + b

A convolution (with or without a constant bias) whose only reader is the normalisation takes `a`
into its weights and `b` into its bias, and the normalisation costs nothing at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.rewriting import is_call, resolved, rewriting

CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
BATCH_NORM = "relax.nn.batch_norm"


@dataclass(frozen=True)
class _Affine:
    """a * x + b, with one pair per channel."""

    scale: np.ndarray
    shift: np.ndarray


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    """Decides on the function as it was, and emits into the function as it becomes."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._values: dict[Any, Any] = {}
        self._readers: dict[Any, int] = {}

    def visit_function_(self, function: Any) -> Any:
        self._values = relax.analysis.get_var2val(function)
        self._readers = _readers(function)
        return super().visit_function_(function)

    def visit_tuple_getitem_(self, item: Any) -> Any:
        norm = self._value(item.tuple_value)
        if item.index != 0 or not is_call(norm, BATCH_NORM) or norm.attrs.training:
            return self.visit_expr_post_order(item)
        affine = self._affine(norm)
        if affine is None:
            return self.visit_expr_post_order(item)
        axis = int(norm.attrs.axis)
        rank = len(norm.args[0].ty.shape)
        folded = self._convolution_with(affine, norm.args[0], axis, rank)
        if folded is not None:
            return folded
        data = self.visit_expr(norm.args[0])
        dtype = str(norm.args[0].ty.dtype)
        scaled = relax.op.multiply(data, _along(affine.scale, axis, rank, dtype))
        return relax.op.add(self.builder_.emit(scaled), _along(affine.shift, axis, rank, dtype))

    def _convolution_with(self, affine: _Affine, data: Any, axis: int, rank: int) -> Any | None:
        """Return the convolution that yields `data` with the normalisation folded in; None if there
        is no convolution to fold into."""
        bias = np.zeros_like(affine.shift)
        value = self._value(data)
        if not self._has_one_reader(data):
            return None
        if is_call(value, "relax.add"):
            added = constant_array(self._value(value.args[1]))
            if added is None or not _is_per_channel(added, axis, rank, len(affine.shift)):
                return None
            bias = np.broadcast_to(added.reshape(-1), affine.shift.shape)
            data = value.args[0]
            value = self._value(data)
            if not self._has_one_reader(data):
                return None
        if not is_call(value, *CONVOLUTIONS) or len(data.ty.shape) != rank:
            return None
        weight = constant_array(self._value(value.args[1]))
        out_layout = str(value.attrs.out_layout or value.attrs.data_layout)
        if weight is None or weight.dtype.kind != "f" or out_layout.index("C") != axis:
            return None
        per_output = [1] * weight.ndim
        per_output[str(value.attrs.kernel_layout).index("O")] = -1
        scaled = (weight * affine.scale.reshape(per_output)).astype(weight.dtype)
        convolution = relax.Call(
            value.op, [self.visit_expr(value.args[0]), as_constant(scaled)], value.attrs
        )
        shift = _along(bias * affine.scale + affine.shift, axis, rank, str(data.ty.dtype))
        # A partition names nodes as the model's variables do (base/node_names.py).
        return relax.op.add(self.builder_.emit(convolution, str(data.name)), shift)

    def _affine(self, norm: Any) -> _Affine | None:
        values = [constant_array(self._value(argument)) for argument in norm.args[1:]]
        constants = [np.asarray(value, dtype="float64") for value in values if value is not None]
        if len(constants) != len(values):
            return None
        gamma, beta, mean, variance = constants
        if not norm.attrs.scale:
            gamma = np.ones_like(gamma)
        if not norm.attrs.center:
            beta = np.zeros_like(beta)
        scale = gamma / np.sqrt(variance + float(norm.attrs.epsilon))
        return _Affine(scale.astype("float32"), (beta - mean * scale).astype("float32"))

    def _value(self, expression: Any) -> Any:
        return resolved(expression, self._values)

    def _has_one_reader(self, variable: Any) -> bool:
        return self._readers.get(variable) == 1


def _readers(function: Any) -> dict[Any, int]:
    """Count the bindings that read each variable that is local to one dataflow block."""
    counts: dict[Any, int] = {}
    for block in function.body.blocks:
        if isinstance(block, relax.DataflowBlock):
            for variable, users in relax.analysis.udchain(block).items():
                if isinstance(variable, relax.DataflowVar):
                    counts[variable] = len(users)
    return counts


def _is_per_channel(added: np.ndarray, axis: int, rank: int, channels: int) -> bool:
    expected = [1] * rank
    expected[axis] = channels
    padded = [1] * (rank - added.ndim) + list(added.shape)
    return added.size == 1 or padded == expected


def _along(values: np.ndarray, axis: int, rank: int, dtype: str) -> Any:
    shape = [1] * rank
    shape[axis] = -1
    return relax.const(values.reshape(shape).astype(dtype))


def fold_batch_norm() -> Any:
    return rewriting("FoldBatchNorm", _Folder)
