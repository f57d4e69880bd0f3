"""Rejects candidates that are not worth a device's time, by counting before they run."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from edgekit.base.wording import counted, size
from edgekit.compiler.schedules.machine import Machine

_MOST_STATEMENTS = 1 << 14
"""The most unrolled statements: beyond, LLVM takes seconds and the code exceeds the cache."""
_WIDEST = 8
"""The widest vector in registers: LLVM splits each live value into that many."""
_MOST_SCRATCH = 256 << 20
"""The most bytes of a kernel's intermediate results."""


def why_not(function: Any, machine: Machine) -> str | None:
    """Return why a scheduled kernel is rejected, None if it is not."""
    scratch = _scratch_bytes(function)
    if scratch > _MOST_SCRATCH:
        return f"it needs {size(scratch)} of scratch memory"
    statements, lanes = _counted(function)
    if statements > _MOST_STATEMENTS:
        return f"it unrolls {counted(statements, 'statement')}"
    if lanes > _WIDEST * machine.lanes:
        return f"vectors of {lanes} are more than registers hold"
    return None


def _scratch_bytes(function: Any) -> int:
    found: list[int] = []

    def look(block: Any) -> None:
        for buffer in block.alloc_buffers:
            extents = [int(getattr(extent, "value", 1)) for extent in buffer.shape]
            found.append(math.prod(extents) * 4)

    tvm_ffi.structural_walk(function.body, (SBlock, look))
    return sum(found)


def _counted(function: Any) -> tuple[int, int]:
    """Return the most statements that loops unroll, and the widest vector."""
    most, widest = 1, 1

    def visit(statement: Any, written: int) -> None:
        nonlocal most, widest
        while isinstance(statement, tirx.For):
            extent = int(getattr(statement.extent, "value", 1))
            if statement.kind == tirx.ForKind.UNROLLED:
                written *= extent
            elif statement.kind == tirx.ForKind.VECTORIZED:
                widest = max(widest, extent)
            statement = statement.body
        most = max(most, written)
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                visit(part, written)
        elif isinstance(statement, SBlockRealize):
            visit(statement.block.body, written)

    visit(function.body, 1)
    return most, widest
