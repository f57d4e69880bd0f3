"""Kernels that are written as loops, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script


def variable(dtype: str, elements: int = 1) -> Any:
    """Return a variable, or some, of the kernel that is being written."""
    return script.buffer_proxy(script.alloc_buffer((elements,), dtype, scope="local"))


def written(
    name: str,
    operands: list[Any],
    results: Sequence[tuple[tuple[int, ...], str]],
    write: Callable[[Any, Any], None],
) -> Any:
    """Return the results, of these shapes and types, of a kernel that `write` writes: it gets the
    buffers of operands and results."""

    def body(ins: Any, outs: Any) -> Any:
        # A builder makes one statement, of several.
        with IRBuilder() as builder:
            with script.seq_scope():
                write(ins, outs)
            return builder.get()

    return te.extern(
        [shape for shape, _ in results],
        operands,
        body,
        dtype=[dtype for _, dtype in results],
        out_buffers=[
            tirx.decl_buffer(shape, dtype, f"result{place}", layout=None)
            for place, (shape, dtype) in enumerate(results)
        ],
        in_buffers=[
            tirx.decl_buffer(one.shape, one.dtype, f"operand{place}", layout=None)
            for place, one in enumerate(operands)
        ],
        name=name,
        tag=f"edgekit_{name}",
    )
