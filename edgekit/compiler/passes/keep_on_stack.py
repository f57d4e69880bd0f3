"""Keep register tiles on the stack rather than in the runtime's workspace.

TVM takes a block of the runtime's workspace for every buffer that a schedule made, register tiles
included. Then each of their numbers is written back for no reader, and a vector that is read by its
lanes goes through memory. On the stack, LLVM sees that they have no other readers, and keeps them
in registers.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx

from edgekit.compiler.rewriting import on_bodies

_MOST_BYTES = 16 << 10
"""The most bytes of one buffer: threads have little stack."""
_STAYS_AS_IT_IS = {"disable_lower_builtin": tirx.IntImm("bool", 1)}
"""TVM's mark for an allocation that its code generator makes on the stack."""


def keep_on_stack() -> Any:
    return on_bodies("KeepOnStack", _on_stack)


def _on_stack(body: Any) -> Any:
    def marked(allocation: Any) -> Any:
        if not _is_small_and_local(allocation.buffer):
            return allocation
        return tirx.AllocBuffer(allocation.buffer, _STAYS_AS_IT_IS, allocation.span)

    return tvm_ffi.structural_map(body, [(tirx.AllocBuffer, marked)])


def _is_small_and_local(buffer: Any) -> bool:
    if buffer.scope() != "local":
        return False
    extents = [getattr(extent, "value", None) for extent in buffer.shape]
    constant = [int(extent) for extent in extents if extent is not None]
    dtype = tvm_ffi.dtype(str(buffer.dtype))
    size = math.prod(constant) * int(dtype.bits) * int(dtype.lanes) // 8
    return len(constant) == len(extents) and size <= _MOST_BYTES
