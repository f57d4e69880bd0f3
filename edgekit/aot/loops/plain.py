"""Convert a scheduled PrimFunc to the forms that C has: loops, conditions, stores, flat indices."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx


def plain_loops(function: Any) -> Any:
    """Remove blocks, flatten buffers, narrow indices to 32 bits where possible, unroll short
    loops."""
    target = tvm.target.Target("c")
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.StmtSimplify(),
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        tirx.transform.Apply(lambda function: function.with_attr("target", target)),
        tirx.transform.LowerIntrin(),
    ]
    module = tvm.IRModule({"main": function})
    for step in passes:
        module = step(module)
    return module["main"]
