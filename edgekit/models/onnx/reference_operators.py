"""Operators that the oracle computes instead of ONNX's reference evaluator, which computes them in
less than the precision of float64. They use Python's own mathematics, and nothing of TVM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from edgekit.base.arrays import Array


class Erf(OpRun):  # type: ignore[misc]  # onnx.reference has no types
    """The evaluator's rounds every result to float32: float64 is off by 3e-8."""

    def _run(self, x: Array) -> tuple[Array]:
        return (_error_function(x.astype(np.float64)).astype(x.dtype),)


class Gelu(OpRun):  # type: ignore[misc]
    """The evaluator's has the square root of two in float32: float64 is off by 1e-7."""

    def _run(self, x: Array, approximate: str | None = None) -> tuple[Array]:
        wide = x.astype(np.float64)
        if approximate == "tanh":
            share = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
        else:
            share = _error_function(wide / math.sqrt(2))
        return ((0.5 * wide * (1 + share)).astype(x.dtype),)


def _error_function(values: Array) -> Array:
    results = [math.erf(value) for value in values.reshape(-1).tolist()]
    return np.array(results, np.float64).reshape(values.shape)


PRECISE: tuple[type[Any], ...] = (Erf, Gelu)
