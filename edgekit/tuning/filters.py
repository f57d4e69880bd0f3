"""Candidates that are not worth a device's time: what they would need is counted beforehand."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from edgekit.compiler.schedules.machine import Machine

_MOST_STATEMENTS = 1 << 14
"""Written down one after another. LLVM takes seconds, and no cache holds the instructions."""
_WIDEST = 8
"""Vectors in one: LLVM takes it apart into so many registers, for each number that is alive."""
_MOST_SCRATCH = 256 << 20
"""Bytes for what a kernel computes on its way."""


def why_not(function: Any, machine: Machine) -> str | None:
    """Why a scheduled kernel is not tried; None where nothing speaks against it."""
    scratch = _scratch_bytes(function)
    if scratch > _MOST_SCRATCH:
        return f"it needs {scratch >> 20} MiB on its way"
    statements, lanes = _counted(function)
    if statements > _MOST_STATEMENTS:
        return f"{statements} statements are written out"
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
    """The most statements that loops write out, and the widest vector."""
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
