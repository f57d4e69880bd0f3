"""Separate the last, shorter vector of a line from the whole ones.

A schedule splits a line of 197 elements into 13 vectors of 16, with a test that leaves 5 lanes of
the last. TVM takes a vector with a test in it apart, every one of them. So the last becomes a
vector of 5 lanes after the loop, and no test is left.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir.transform import ConvertSSA

from edgekit.compiler.rewriting import on_bodies

REST = "edgekit.rest"
"""The annotation of a loop over vectors: how many lanes its last one has."""
LANES = "edgekit.lanes"
"""The annotation of the loops over their lanes."""


def whole_vectors() -> Any:
    """Return the pass that runs before TVM lowers schedules."""
    # What stands twice after it defines other variables each time.
    return ir.transform.Sequential([on_bodies("WholeVectors", _in_body), ConvertSSA()])


def _in_body(body: Any) -> Any:
    return tvm_ffi.structural_map(body, [(tirx.For, _apart)])


def _apart(loop: Any) -> Any:
    rest = (loop.annotations or {}).get(REST)
    if rest is None:
        return loop
    whole = loop.extent - 1
    first = tirx.const(0, str(loop.loop_var.ty))
    vectors = tirx.For(loop.loop_var, first, whole, loop.kind, loop.body)
    last = _with(_shortened(loop.body, int(rest)), loop.loop_var, whole)
    return tirx.SeqStmt([vectors, last])


def _shortened(body: Any, rest: int) -> Any:
    def lanes(loop: Any) -> Any:
        if LANES not in (loop.annotations or {}):
            return loop
        short = tirx.const(rest, str(loop.loop_var.ty))
        return tirx.For(loop.loop_var, loop.min, short, loop.kind, loop.body)

    return tvm_ffi.structural_map(body, [(tirx.For, lanes)])


def _with(body: Any, variable: Any, value: Any) -> Any:
    """Return the body with a value in place of a variable."""
    return tvm_ffi.structural_map(
        body, [(tirx.Var, lambda other: value if other.same_as(variable) else other)]
    )
