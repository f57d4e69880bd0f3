"""How much each kernel of a model has to do: arithmetic and bytes, counted before any schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgekit.backends.offloading import fused_for
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import Model
from edgekit.profiles.cpu import Target


@dataclass(frozen=True)
class Work:
    flops: int
    """Two for each multiply-accumulate of a product, one for each element of other steps."""
    bytes: int
    """The bytes of inputs, weights and results, each once."""


def work_of(model: Model, target: Target) -> dict[str, Work]:
    tvm = load_tvm()
    tvm_target = tvm.target.Target(target.as_json())
    module = fused_for(model, tvm_target)
    return {
        variable.name_hint: _count(function)
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def _count(function: Any) -> Work:
    import tvm

    from edgekit.compiler.schedules.blocks import blocks_of

    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    blocks = blocks_of(schedule) or []
    flops = sum((2 if block.reduced else 1) * block.work for block in blocks)
    size = 0
    for parameter in function.params:
        if hasattr(parameter.ty, "shape"):
            extents = [int(getattr(extent, "value", 0)) for extent in parameter.ty.shape]
            size += math.prod(extents) * tvm.DataType(str(parameter.ty.dtype)).itemsize
    return Work(flops, size)
