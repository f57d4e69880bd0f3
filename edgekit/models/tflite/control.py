"""Graphs that a graph calls, and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tvm import relax

from edgekit.models.control import (
    DECIDED_BRANCH,
    DECIDED_LOOP,
    KNOWN_BRANCH,
    UNROLLED,
    check_length,
    decided_branch,
    decided_loop,
    flag_of,
    known_scalar,
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

    @property
    def builder(self) -> relax.BlockBuilder:
        """The builder with the open function."""
        ...

    def value(self, index: int) -> Value: ...

    def call(self, graph: int, arguments: Sequence[Value]) -> list[Value]:
        """Convert a graph and return its results."""
        ...

    def size_of(self, graph: int) -> int:
        """Return the number of a graph's operators."""
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
    caller.repaired(DECIDED_BRANCH)
    keys, before = list(caller.variables), dict(caller.variables)

    def branch(graph: int) -> list[Value]:
        """Return the graph's results, then the variables after it."""
        caller.variables.update(before)
        results = caller.call(graph, arguments)
        return [*results, *(caller.variables[key] for key in keys)]

    results = decided_branch(
        caller.builder, condition, [partial(branch, graph) for graph in operator.graphs]
    )
    first = len(results) - len(keys)
    caller.variables.update(zip(keys, results[first:], strict=True))
    return results[:first]


def _while(caller: Caller, operator: TfliteOperator) -> list[Value]:
    condition, body = operator.graphs
    values = [caller.value(index) for index in operator.inputs]
    before = dict(caller.variables)
    first = caller.call(condition, values)[0]
    if not is_known(first):
        caller.variables.update(before)
        return _decided(caller, operator, first, values)
    caller.repaired(UNROLLED)
    iteration = 0
    while known_scalar(first, "condition", _COUNTED):
        iteration += 1
        check_length(iteration, caller.size_of(body))
        values = caller.call(body, values)
        first = caller.call(condition, values)[0]
    return values


def _decided(
    caller: Caller, operator: TfliteOperator, first: Value, values: list[Value]
) -> list[Value]:
    """Emit a loop that data ends. It carries the model's variables too."""
    condition, body = operator.graphs
    keys = list(caller.variables)
    caller.repaired(DECIDED_LOOP)

    def iteration(given: list[Value]) -> tuple[list[Value], list[Value]]:
        caller.variables.update(zip(keys, given[1 + len(values) :], strict=True))
        after = caller.call(body, given[1 : 1 + len(values)])
        again = caller.call(condition, after)[0]
        flag = flag_of(caller.builder, again)
        return [flag, *after, *(caller.variables[key] for key in keys)], []

    carried = [*values, *(caller.variables[key] for key in keys)]
    flag = flag_of(caller.builder, first)
    found = decided_loop(caller.builder, None, [flag, *carried], iteration)
    caller.variables.update(zip(keys, found[1 + len(values) :], strict=True))
    return found[1 : 1 + len(values)]


CONTROL: Mapping[str, Callable[[Caller, TfliteOperator], list[Value]]] = {
    "ASSIGN_VARIABLE": _assign,
    "CALL": lambda caller, op: caller.call(op.graphs[0], [caller.value(i) for i in op.inputs]),
    "CALL_ONCE": lambda caller, op: [],
    "IF": _if,
    "READ_VARIABLE": _read,
    "VAR_HANDLE": _handle,
    "WHILE": _while,
}
