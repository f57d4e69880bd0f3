"""A scheduled module as a program in machine code: what each call becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from edgekit.aot.operators import Argument, CallKernel, CallRegion, Copy, HoldIndices, Operator
from edgekit.aot.program import Buffer, Program
from edgekit.aot.read import NeedsRuntimeError, read_program
from edgekit.compiler.loops import times_run
from edgekit.compiler.passes.indices import IndexRule
from edgekit.models.model import Model


def read_steps(model: Model, module: Any) -> Program:
    """Read a scheduled module; NeedsRuntimeError if it has no such form."""
    bodies = times_run(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and variable.name_hint not in ("main", *bodies):
            raise NeedsRuntimeError("functions that call each other")
    return read_program(model.source.name, model, module, _InMachineCode())


class _InMachineCode:
    reserved: frozenset[str] = frozenset()

    def kernel(self, name: str, operands: Sequence[Argument], outputs: int) -> Operator:
        del outputs
        return CallKernel(name, tuple(operands))

    def external(
        self, symbol: str, operands: Sequence[Argument]
    ) -> tuple[Operator, tuple[str, ...]]:
        return CallRegion(symbol, tuple(operands)), ()

    def indices(self, rule: IndexRule, given: str, result: str, elements: int) -> Operator:
        counts = rule.counts_from_end
        return HoldIndices(rule.tensor, rule.extents, counts, given, result, elements)

    def copy(self, operand: Argument, shape: tuple[int, ...], dtype: str) -> Operator:
        del shape, dtype
        return Copy((operand,))

    def reason(self, operator: Operator, layers: tuple[str, ...]) -> str:
        del operator, layers
        return ""

    def check(self, buffer: Buffer) -> None:
        """Accept every buffer."""
