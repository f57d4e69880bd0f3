"""A lowered module as a program in C: what each call becomes, and what C can't have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.lower import Lowered
from edgekit.aot.operators import Argument, CheckIndices, LoopNest, Operator, Weight
from edgekit.aot.program import Buffer, Program
from edgekit.aot.quantised.recognised import STEP_PREFIX
from edgekit.aot.read import NeedsRuntimeError, read_program
from edgekit.base.errors import UnsupportedModelError
from edgekit.base.wording import counted
from edgekit.compiler.passes.indices import IndexRule
from edgekit.models.model import Model

_HINT = "docs/bare-metal.md says what a model for a microcontroller may use"


def program_in_c(name: str, model: Model, lowered: Lowered) -> Program:
    """Return the program; `name` is the C identifier with which all of its names begin."""
    ports = len(model.inputs) + len(model.outputs)
    try:
        return read_program(name, model, lowered.module, _InC(lowered, name, ports))
    except NeedsRuntimeError as error:
        raise UnsupportedModelError(
            f"the model has {error}: it has no form without TVM's runtime", hint=_HINT
        ) from error


class _InC:
    def __init__(self, lowered: Lowered, name: str, ports: int) -> None:
        self._lowered = lowered
        # The functions around the steps, and their variables.
        interface = {f"{name}_{word}" for word in ("run", "run_step", "step_name", "check")}
        types = {f"{name}_inputs", f"{name}_outputs"}
        variables = {f"{word}{k}" for word in ("in", "out") for k in range(ports)}
        words = {"inputs", "outputs", "arena", "at", "step"}
        self.reserved = frozenset(interface | types | variables | words)

    def kernel(self, name: str, operands: Sequence[Argument], outputs: int) -> Operator:
        return _nest(self._lowered.module[name], operands, outputs)

    def external(
        self, symbol: str, operands: Sequence[Argument]
    ) -> tuple[Operator, tuple[str, ...]]:
        del operands
        number = int(symbol.removeprefix(STEP_PREFIX))
        return self._lowered.operators[number], self._lowered.operator_layers[number]

    def indices(self, rule: IndexRule, given: str, result: str, elements: int) -> Operator:
        return CheckIndices(elements, given, result, rule.extents, rule.counts_from_end)

    def copy(self, operand: Argument, shape: tuple[int, ...], dtype: str) -> Operator:
        source = te.placeholder(shape, dtype, "source")
        copy = te.compute(shape, lambda *at: source(*at), "copy")
        return _nest(te.create_prim_func([source, copy]), [operand], 1)

    def reason(self, operator: Operator, layers: tuple[str, ...]) -> str:
        if isinstance(operator, LoopNest):
            for declined in self._lowered.declined:
                if set(declined.layers) & set(layers):
                    return declined.reason
        return ""

    def check(self, buffer: Buffer) -> None:
        name, shape = buffer.name, list(buffer.shape)
        if buffer.dtype not in C_TYPES:
            raise UnsupportedModelError(
                f"{name} holds {buffer.dtype}, which C99 has no type for", hint=_HINT
            )
        if buffer.elements == 0:
            raise UnsupportedModelError(
                f"{name} has the shape {shape} and so no element", hint=_HINT
            )
        if buffer.bytes >= 1 << 31:
            raise UnsupportedModelError(
                f"{name} would take {counted(buffer.bytes, 'byte')}, "
                "more than a microcontroller addresses",
                hint="give the model a smaller input",
            )


def _nest(function: Any, operands: Sequence[Argument], outputs: int) -> LoopNest:
    """Return the loop nest with its parameters in the order inputs, constants, outputs."""
    parameters = list(function.params)
    if len(parameters) != len(operands) + outputs:
        raise NeedsRuntimeError("a tensor whose shape is known only when it runs")
    given = list(zip(parameters, operands, strict=False))
    inputs = [parameter for parameter, operand in given if isinstance(operand, int)]
    constants = [(p, operand) for p, operand in given if isinstance(operand, Weight)]
    ordered = [*inputs, *(p for p, _ in constants), *parameters[len(operands) :]]
    return LoopNest(
        tirx.PrimFunc(ordered, function.body, function.ret_type, function.attrs),
        tuple(np.ascontiguousarray(weight.array) for _, weight in constants),
    )
