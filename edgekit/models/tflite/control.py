"""Graphs that a graph calls, and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.models.control import (
    BOTH_BRANCHES,
    KNOWN_BRANCH,
    UNROLLED,
    check_length,
    known_scalar,
    selected,
)
from edgekit.models.onnx.values import Value, is_known
from edgekit.models.tflite.file import TfliteOperator, VariableKey

_COUNTED = "export the model with a loop that runs a constant number of times"


@dataclass(frozen=True)
class Handle:
    """A tensor that stands for a variable."""

    variable: VariableKey


class Caller(Protocol):
    """The interface of a conversion that control flow uses."""

    variables: dict[VariableKey, Value]
    """The values of all variables at this point of the program."""

    def value(self, index: int) -> Value: ...

    def call(self, graph: int, arguments: Sequence[Value]) -> list[Value]:
        """Convert a graph and return its results."""
        ...

    def size_of(self, graph: int) -> int:
        """Return the number of a graph's operators."""
        ...

    def settle(self, value: Value) -> Value:
        """Bind a value to a variable of the program."""
        ...

    def repaired(self, what: str) -> None: ...


def _variable(caller: Caller, operator: TfliteOperator) -> VariableKey:
    handle = caller.value(operator.inputs[0])
    if not isinstance(handle, Handle):
        raise ValueError("its variable is not one of the file")
    return handle.variable


def _handle(caller: Caller, operator: TfliteOperator) -> list[Value]:
    return [Handle(operator.variable)]


def _read(caller: Caller, operator: TfliteOperator) -> list[Value]:
    return [caller.variables[_variable(caller, operator)]]


def _assign(caller: Caller, operator: TfliteOperator) -> list[Value]:
    caller.variables[_variable(caller, operator)] = caller.value(operator.inputs[1])
    return []


def _if(caller: Caller, operator: TfliteOperator) -> list[Value]:
    condition, *arguments = map(caller.value, operator.inputs)
    if is_known(condition):
        caller.repaired(KNOWN_BRANCH)
        return caller.call(operator.graphs[int(not condition.reshape(-1)[0])], arguments)
    before = dict(caller.variables)
    taken = caller.call(operator.graphs[0], arguments)
    after, keys = dict(caller.variables), list(before)
    caller.variables.update(before)
    other = caller.call(operator.graphs[1], arguments)
    caller.repaired(BOTH_BRANCHES)
    changed = [key for key in keys if after[key] is not caller.variables[key]]
    results = selected(
        condition,
        [*taken, *(after[key] for key in changed)],
        [*other, *(caller.variables[key] for key in changed)],
        caller.settle,
    )
    caller.variables.update(zip(changed, results[len(taken) :], strict=True))
    return results[: len(taken)]


def _while(caller: Caller, operator: TfliteOperator) -> list[Value]:
    condition, body = operator.graphs
    values = [caller.value(index) for index in operator.inputs]
    caller.repaired(UNROLLED)
    iteration = 0
    while known_scalar(caller.call(condition, values)[0], "condition", _COUNTED):
        iteration += 1
        check_length(iteration, caller.size_of(body))
        values = caller.call(body, values)
    return values


CONTROL: Mapping[str, Callable[[Caller, TfliteOperator], list[Value]]] = {
    "ASSIGN_VARIABLE": _assign,
    "CALL": lambda caller, op: caller.call(op.graphs[0], [caller.value(i) for i in op.inputs]),
    "CALL_ONCE": lambda caller, op: [],
    "IF": _if,
    "READ_VARIABLE": _read,
    "VAR_HANDLE": _handle,
    "WHILE": _while,
}
