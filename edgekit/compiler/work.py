"""Counts what each kernel of a fused module has to do, before it gets a schedule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    flops: int = 0
    """Two for each multiply-accumulate of a product, one for each element of other steps."""
    bytes: int = 0
    """The bytes of inputs, weights and results, each once; of those that are looked up, as many as
    are read."""
    integers: int = 0
    """Two for each multiply-accumulate of small integers."""

    @property
    def operations(self) -> int:
        return self.flops + self.integers

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops, self.bytes + other.bytes, self.integers + other.integers
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.flops * times, self.bytes * times, self.integers * times)


def work_of_kernels(module: Any) -> Mapping[str, Work]:
    """Return the work of one call of each kernel."""
    import tvm

    return {
        str(variable.name_hint): _count(function)
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def _count(function: Any) -> Work:
    import tvm

    from edgekit.compiler.schedules.blocks import blocks_of

    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    try:
        blocks = blocks_of(schedule) or []
    except tvm.s_tir.ScheduleError:  # written as loops without blocks: sorting, running sums
        blocks = []
    flops = integers = 0
    reads: Counter[str] = Counter()
    for block in blocks:
        body = schedule.get(block.handle)
        for region in body.reads:
            reads[str(region.source.name)] += block.work * _elements(region)
        if block.reduced and _sums_integers(body):
            integers += 2 * block.work
        else:
            flops += (2 if block.reduced else 1) * block.work
    size = 0
    for parameter in function.params:
        if hasattr(parameter.ty, "shape"):
            elements = math.prod(int(getattr(one, "value", 0)) for one in parameter.ty.shape)
            read = reads.get(str(parameter.name), elements)
            size += min(elements, read) * tvm.DataType(str(parameter.ty.dtype)).itemsize
    return Work(flops, size, integers)


def _elements(region: Any) -> int:
    return math.prod(int(getattr(one.extent, "value", 1)) for one in region.region)


def _sums_integers(body: Any) -> bool:
    """Return whether a block adds products of small integers up in int32."""
    small = sum(str(region.source.dtype) in _SMALL for region in body.reads)
    return small >= 2 and all(str(region.source.dtype) == "int32" for region in body.writes)


_SMALL = ("int8", "uint8", "int16")
