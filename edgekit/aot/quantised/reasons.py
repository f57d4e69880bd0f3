"""Reasons why a group of a quantised model stays in floats."""

from __future__ import annotations

from typing import Any

from tvm import relax

from edgekit.aot.quantised.graph import DEQUANTIZE, QUANTIZE, Graph, is_call, operator_name
from edgekit.base.tvm_compat import constant_array


def reads_stored(graph: Graph, value: Any) -> bool:
    """Return whether floats are computed from quantised tensors at all."""
    pending, seen = [value], set()
    while pending:
        current = graph.value(pending.pop())
        if current in seen:
            continue
        seen.add(current)
        if is_call(current, DEQUANTIZE):
            if constant_array(graph.value(current.args[0])) is None:
                return True
            continue
        if isinstance(current, relax.Call):
            pending.extend(current.args)
        elif isinstance(current, relax.Tuple):
            pending.extend(current.fields)
    return False


def stored_otherwise(call: Any) -> str:
    """Return the reason why a quantize call is not supported."""
    dtype = str(call.attrs.out_dtype)
    if dtype not in ("int8", "uint8"):
        return f"its result is stored as {dtype}, integer kernels know 8 bits"
    return "its result has no one scale for all of it"


def is_whole(argument: Any) -> bool:
    """Return whether an argument is a shape, an index or a number, and not a float of the model."""
    dtype = str(getattr(getattr(argument, "ty", None), "dtype", "") or "")
    return not dtype.startswith("float")


def words(graph: Graph, value: Any) -> str:
    """Name the operators from the stored values to this one, a form that no kernel has."""
    names = [operator_name(value)]
    pending = list(getattr(value, "args", ()))
    while pending:
        current = graph.value(pending.pop(0))
        if isinstance(current, relax.Tuple):
            pending.extend(current.fields)
        elif isinstance(current, relax.Call) and not is_call(current, DEQUANTIZE, QUANTIZE):
            names.append(operator_name(current))
            pending.extend(current.args)
    distinct = [name for name in dict.fromkeys(reversed(names)) if name]
    return ", ".join(distinct[:-1]) + (" and " if len(distinct) > 1 else "") + distinct[-1]
