"""TVM's passes from a scheduled kernel to what a code generator takes: one list for every
processor, with places for its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import transform as blocks
from tvm.tirx import transform

from edgekit.compiler.passes.exact_differences import exact_differences


@dataclass(frozen=True, eq=False)
class Own:
    """The passes of one kind of processor, by their place in the list."""

    first: Sequence[Any] = ()
    sums: Sequence[Any] = ()
    """Passes over sums that threads share."""
    opaque: Sequence[Any] = ()
    compact: Sequence[Any] = ()
    vectors: Sequence[Any] = ()
    checked: Sequence[Any] = ()
    """Passes at the end."""


def loops(own: Own) -> list[Any]:
    """Return TVM's own list, up to where it packs the arguments."""
    return [
        exact_differences(),
        *own.first,
        blocks.CanonicalizeLoop(),
        *own.sums,
        blocks.LowerInitBlock(),
        blocks.PlanAndUpdateBufferAllocationLocation(),
        blocks.ConvertBlocksToOpaque(),
        *own.opaque,
        blocks.CompactBufferAllocation(),
        *own.compact,
        blocks.LowerMatchBuffer(),
        blocks.StmtSimplify(),
        blocks.AnnotateIrregularLoop(),
        blocks.InjectSoftwarePipeline(),
        blocks.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.BF16ComputeLegalize(),
        transform.NarrowDataType(32),
        blocks.LoopPartition(),
        transform.VectorizeLoop(True),
        *own.vectors,
        transform.StorageRewrite(),
        blocks.HoistIfThenElse(),
        transform.UnrollLoop(),
        blocks.RenormalizeSplitPattern(),
        transform.StmtSimplify(),
        transform.RemoveNoOp(),
        blocks.RewriteUnsafeSelect(),
        transform.CommonSubexprElim(),
        transform.FP8ComputeLegalize(),
        transform.VerifyMemory(),
        *own.checked,
    ]


def code(before: Sequence[Any], after: Sequence[Any] = ()) -> list[Any]:
    """Return the list after it: `before` and `after` are around the lowering of intrinsics."""
    return [
        transform.FP8StorageLegalize(),
        transform.BF16StorageLegalize(),
        *before,
        transform.LowerIntrin(),
        *after,
    ]
