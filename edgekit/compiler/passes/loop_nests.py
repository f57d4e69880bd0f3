"""Loop nests for LegalizeOps that compute what onnxruntime, LiteRT and PyTorch compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import te, tirx, topi

from edgekit.base.tvm_compat import constant_array

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def loop_nests() -> Mapping[str, Callable[[Any, Any], Any]]:
    """Return operators for LegalizeOps, each with the function that makes its loop nest.

    ReLU and clipping pass NaN on. A maximum is "the first if it is larger, else the second", and a
    comparison with NaN is false: so the value must be the second operand. TVM's own loop nests put
    it first and turn NaN into zero. The same instruction with its operands swapped costs nothing.
    """
    return {
        "relax.argmax": lambda block, call: _place(block, call, topi.argmax),
        "relax.argmin": lambda block, call: _place(block, call, topi.argmin),
        "relax.nn.relu": _relu,
        "relax.clip": _clip,
        "relax.maximum": lambda block, call: _with_bound(block, call, te.max, topi.maximum),
        "relax.minimum": lambda block, call: _with_bound(block, call, te.min, topi.minimum),
    }


def _relu(block: Any, call: Any) -> Any:
    def relu(value: Any) -> Any:
        zero = tirx.const(0, value.dtype)
        return te.compute(value.shape, lambda *index: te.max(zero, value(*index)))

    return block.call_te(relu, call.args[0], primfunc_name_hint="relu")


def _clip(block: Any, call: Any) -> Any:
    def clip(value: Any, low: Any, high: Any) -> Any:
        least, most = (_scalar(bound, value) for bound in (low, high))
        return te.compute(value.shape, lambda *index: te.max(least, te.min(most, value(*index))))

    return block.call_te(clip, *call.args, primfunc_name_hint="clip")


def _with_bound(
    block: Any, call: Any, choose: Callable[[Any, Any], Any], general: Callable[[Any, Any], Any]
) -> Any:
    """Make a maximum or minimum with one number; leave any other to TVM."""
    first, second = call.args
    for bound, value in ((first, second), (second, first)):
        number = constant_array(bound)
        if (
            number is None
            or number.size != 1
            or number.ndim > len(value.ty.shape)
            or str(value.ty.dtype) not in _FLOATS
        ):
            continue
        limit = float(number.reshape(-1)[0])

        def bounded(tensor: Any, limit: float = limit) -> Any:
            edge = tirx.const(limit, tensor.dtype)
            return te.compute(tensor.shape, lambda *index: choose(edge, tensor(*index)))

        return block.call_te(bounded, value, primfunc_name_hint=general.__name__)
    return block.call_te(general, first, second)


def _scalar(bound: Any, value: Any) -> Any:
    if tvm.ir.is_prim_expr(bound):
        return tirx.Cast(value.dtype, bound)
    return tirx.const(bound, value.dtype)


def _place(block: Any, call: Any, best: Callable[..., Any]) -> Any:
    """Make argmax or argmin. TVM begins with the lowest value of the type at place -1, and of two
    equal values keeps the lower place: in a row of zeros in uint8, or of minus infinity, the
    largest value is at -1. All values are equal then, and the first place is correct."""

    def place(value: Any) -> Any:
        found = best(value, call.attrs.axis, bool(call.attrs.keepdims))
        first = tirx.const(0, found.dtype)
        return te.compute(found.shape, lambda *index: te.max(first, found(*index)))

    return block.call_te(place, call.args[0], primfunc_name_hint=best.__name__)
