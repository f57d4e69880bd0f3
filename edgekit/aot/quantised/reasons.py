"""Why a group of a quantised model stays in floats, in words."""

from __future__ import annotations

from typing import Any

from tvm import relax

from edgekit.aot.quantised.graph import DEQUANTIZE, QUANTIZE, Graph, is_call, operator_name
from edgekit.base.tvm_compat import constant_array


def reads_stored(graph: Graph, value: Any) -> bool:
    """Whether floats are computed out of quantised tensors at all."""
    pending, seen = [value], set()
    while pending:
        here = graph.value(pending.pop())
        if here in seen:
            continue
        seen.add(here)
        if is_call(here, DEQUANTIZE):
            if constant_array(graph.value(here.args[0])) is None:
                return True
            continue
        if isinstance(here, relax.Call):
            pending.extend(here.args)
        elif isinstance(here, relax.Tuple):
            pending.extend(here.fields)
    return False


def stored_otherwise(call: Any) -> str:
    """What is wrong with a quantize call."""
    dtype = str(call.attrs.out_dtype)
    if dtype not in ("int8", "uint8"):
        return f"its result is stored as {dtype}, integer kernels know 8 bits"
    return "its result has no one scale for all of it"


def is_whole(argument: Any) -> bool:
    """Whether an argument is a shape, an index or a number, and no floats of the model's."""
    dtype = str(getattr(getattr(argument, "ty", None), "dtype", "") or "")
    return not dtype.startswith("float")


def words(graph: Graph, value: Any) -> str:
    """The operators between the stored values and this one, which no kernel has in this form."""
    names = [operator_name(value)]
    pending = list(getattr(value, "args", ()))
    while pending:
        here = graph.value(pending.pop(0))
        if isinstance(here, relax.Tuple):
            pending.extend(here.fields)
        elif isinstance(here, relax.Call) and not is_call(here, DEQUANTIZE, QUANTIZE):
            names.append(operator_name(here))
            pending.extend(here.args)
    distinct = [name for name in dict.fromkeys(reversed(names)) if name]
    return ", ".join(distinct[:-1]) + (" and " if len(distinct) > 1 else "") + distinct[-1]
