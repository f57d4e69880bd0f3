"""Choose the steps of a region that stay in float32 when the rest is in half precision.

Half precision ends at 65504 and has eleven bits: enough for products, whose sums TensorRT keeps in
float32, but too little for sums of squares, exponentials and the like.
"""

from __future__ import annotations

import numpy as np

from edgekit.backends.base import Step

_LARGEST = 65504.0
_ALWAYS = frozenset(
    (
        *("ReduceMean", "ReduceSum", "ReduceProd", "CumSum", "layer_norm"),
        *("Exp", "Log", "Pow", "square", "rsqrt", "Reciprocal", "Tan", "Sinh", "Cosh"),
    )
)
_FOLLOWING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Sqrt", "Neg", "Abs", "Max", "Min", "Softmax", "LogSoftmax"),
        *("Reshape", "Transpose", "Expand", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"),
        *("Equal", "not_equal", "float_to_truth", "Where"),
    )
)
"""Operators in float32 if one of their inputs is, so that a spelled-out norm stays in float32."""


def needs_range(step: Step, reads_wide: bool) -> bool:
    kind = step.layer.kind
    if kind in _ALWAYS or (kind in _FOLLOWING and reads_wide):
        return True
    if kind == "Mul" and len(step.inputs) == 2 and step.inputs[0] == step.inputs[1]:
        return True
    return kind != "Clip" and any(_too_large(array) for array in step.layer.weights.values())


def _too_large(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    if array.dtype.kind != "f":
        return False
    finite = array[np.isfinite(array)]
    return bool(finite.size) and float(np.abs(finite).max()) > _LARGEST
