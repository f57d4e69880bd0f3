"""Running sums and products: each element with all before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as script

from edgekit.compiler.written import written


def running_of(
    given: Any,
    dtype: str,
    identity: int,
    combine: Callable[[Any, Any], Any],
    *,
    exclusive: bool,
) -> Any:
    """Return the running results along the second of three axes; `exclusive` leaves each element
    itself out."""
    lines, length, inner = (int(extent) for extent in given.shape)
    shape = (lines, length, inner)
    if lines * length * inner == 0:
        return te.compute(shape, lambda *_: tirx.const(identity, dtype), name="running")

    def body(ins: Any, outs: Any) -> None:
        source, target = (script.buffer_proxy(one) for one in (ins[0], outs[0]))
        with script.serial(0, lines) as line:
            with script.serial(0, inner) as column:
                first = tirx.Cast(dtype, source[line, 0, column])
                target[line, 0, column] = tirx.const(identity, dtype) if exclusive else first
            with script.serial(0, length - 1) as step, script.serial(0, inner) as column:
                taken = source[line, step if exclusive else step + 1, column]
                target[line, step + 1, column] = combine(
                    target[line, step, column], tirx.Cast(dtype, taken)
                )

    return written("running", [given], [(shape, dtype)], body)
