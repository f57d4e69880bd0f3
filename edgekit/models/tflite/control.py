"""Graphs that a graph calls, and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from tvm import relax

from edgekit.base.errors import EdgekitError
from edgekit.compiler.loops import NoLoopError, Sliced, emit_loop
from edgekit.models.control import (
    DECIDED_BRANCH,
    DECIDED_LOOP,
    KNOWN_BRANCH,
    UNROLLED,
    check_length,
    decided_branch,
    decided_loop,
    flag_of,
    is_short,
    known_scalar,
    tried,
)
from edgekit.models.onnx.node import RefusedError
from edgekit.models.onnx.values import Value, as_expr, dtype_of, is_known, shape_of
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
    repairs: list[str]

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
    counted = _counted(caller, operator, values)
    caller.variables.update(before)
    if counted is not None:
        caller.variables.update(counted.variables)
        return counted.values
    caller.repaired(UNROLLED)
    iteration = 0
    while known_scalar(first, "condition", _COUNTED):
        iteration += 1
        check_length(iteration, caller.size_of(body))
        values = caller.call(body, values)
        first = caller.call(condition, values)[0]
    return values


@dataclass(frozen=True)
class _Left:
    """What a loop leaves."""

    values: list[Value]
    variables: dict[VariableKey, Value]


def _counted(caller: Caller, operator: TfliteOperator, values: list[Value]) -> _Left | None:
    """Emit a loop whose number of iterations is known; None if it is short, or if its body can't
    be repeated.

    Its counters are what is known in every iteration. The loop gets them as slices of their values.
    """
    condition, body = operator.graphs
    builder, keys = caller.builder, list(caller.variables)
    before = [*values, *caller.variables.values()]
    told = list(caller.repairs)
    if any(isinstance(value, Handle) for value in before):
        return None

    def iteration(given: Sequence[Value]) -> list[Value]:
        caller.variables.update(zip(keys, given[len(values) :], strict=True))
        after = caller.call(body, given[: len(values)])
        return [*after, *(caller.variables[key] for key in keys)]

    def goes_on(given: Sequence[Value]) -> list[Value]:
        caller.variables.update(zip(keys, given[len(values) :], strict=True))
        return caller.call(condition, given[: len(values)])

    try:
        counters = _counters(builder, before, iteration)
        counts: list[list[Value]] = []
        given = _opened(before, counters)
        while known_scalar(tried(builder, partial(goes_on, given))[0], "condition", _COUNTED):
            check_length(len(counts), caller.size_of(body))
            counts.append([given[k] for k in counters])
            given = _opened(tried(builder, partial(iteration, given)), counters)
        if is_short(len(counts)):
            return None
        rest = [k for k in range(len(before)) if k not in counters]

        def repeated(
            slices: list[Value], states: list[Value]
        ) -> tuple[Sequence[Value], Sequence[Value]]:
            known = dict(zip([*counters, *rest], [*slices, *states], strict=True))
            after = iteration([known[k] for k in range(len(before))])
            return [builder.emit(as_expr(after[k])) for k in rest], []

        sliced = [Sliced(as_expr(np.stack(one))) for one in zip(*counts, strict=True)]
        states = [as_expr(before[k]) for k in rest]
        found = emit_loop(builder, len(counts), sliced, states, repeated, ())
    except (NoLoopError, EdgekitError, RefusedError):
        # Written out, the body may know more; if not, that says why.
        caller.repairs[:] = told
        return None
    last = dict(zip(rest, found, strict=True))
    results = [last.get(k, given[k]) for k in range(len(before))]
    variables = zip(keys, results[len(values) :], strict=True)
    return _Left(results[: len(values)], dict(variables))


def _counters(
    builder: relax.BlockBuilder,
    before: Sequence[Value],
    iteration: Callable[[Sequence[Value]], list[Value]],
) -> list[int]:
    """Return the places of the states that are known in every iteration."""
    known = [k for k, value in enumerate(before) if is_known(value)]
    while True:
        after = tried(builder, partial(iteration, _opened(before, known)))
        still = [k for k in known if is_known(after[k])]
        if still == known:
            return known
        known = still


def _opened(values: Sequence[Value], known: Sequence[int]) -> list[Value]:
    """Return the values with those that are not `known` as variables of their type."""
    return [
        value
        if k in known
        else relax.Var("state", relax.TensorType(shape_of(value), dtype_of(value)))
        for k, value in enumerate(values)
    ]


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
