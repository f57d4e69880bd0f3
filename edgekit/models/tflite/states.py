"""Variables of a TFLite model: each becomes an input and an output, with a known first value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.tflite.file import (
    BYTES_PER_ELEMENT,
    TfliteFile,
    TfliteGraph,
    TfliteOperator,
    VariableKey,
    tensor_key,
    values_of,
)

INITIALISING = frozenset({"ASSIGN_VARIABLE", "VAR_HANDLE"})


@dataclass(frozen=True)
class Variable:
    """A variable of the file with its first value."""

    key: VariableKey
    initial: Array
    quantization: Quantization | None
    assigned: bool
    """Whether a call of the model changes the variable; one that stays the same is a constant."""
    name: str
    """The name that its state has, if no other tensor has it."""
    tensor: int = -1
    """The tensor of the main graph that is the variable; -1 for one behind a handle."""


@dataclass(frozen=True)
class State:
    """A variable as an input and an output of the program."""

    variable: Variable
    input: TensorSpec
    output: TensorSpec


def called_graphs(file: TfliteFile, *, initialising: bool = False) -> tuple[TfliteGraph, ...]:
    """Return the main graph and those that it calls, without those that run once on loading."""
    found: dict[int, TfliteGraph] = {}
    waiting = [0]
    while waiting:
        number = waiting.pop(0)
        found[number] = file.graphs[number]
        for operator in file.graphs[number].operators:
            if initialising or operator.name != "CALL_ONCE":
                waiting += [one for one in operator.graphs if one not in found]
    return tuple(found.values())


def variables_of(file: TfliteFile) -> Mapping[VariableKey, Variable]:
    """Return the variables whose first values are known, in the order of the file."""
    first: dict[VariableKey, Variable] = {}
    changed = {key for graph in called_graphs(file) for key, _ in _assignments(graph)}
    for graph in initial_graphs(file):
        for key, index in _assignments(graph):
            tensor = graph.tensors[index]
            if tensor.is_constant and not tensor.sparse:
                value = values_of(file, tensor)
                name = key[1] or "state"
                first[key] = Variable(key, value, tensor.quantization, key in changed, name)
    return {**first, **_variable_tensors(file)}


def _variable_tensors(file: TfliteFile) -> dict[VariableKey, Variable]:
    """Return the tensors that keep their values, which LiteRT clears when it loads the file."""
    found: dict[VariableKey, Variable] = {}
    for index, tensor in enumerate(file.main.tensors):
        if tensor.variable and not tensor.is_constant and tensor.dtype in BYTES_PER_ELEMENT:
            stored = tensor.quantization
            zero = stored.zero_points[0] if stored is not None and tensor.dtype == "int8" else 0
            # A view of one number: a file may declare what no memory holds.
            value = np.broadcast_to(np.array(zero, tensor.dtype), tensor.shape)
            key = tensor_key(index)
            found[key] = Variable(key, value, stored, True, tensor.name, index)
    return found


def initial_graphs(file: TfliteFile) -> Iterator[TfliteGraph]:
    for graph in called_graphs(file):
        for operator in graph.operators:
            if operator.name == "CALL_ONCE":
                yield file.graphs[operator.graphs[0]]


def states_of(file: TfliteFile) -> tuple[State, ...]:
    """Return the variables that calls change, under names that no other input or output has."""
    taken = {file.main.tensors[index].name for index in (*file.main.inputs, *file.main.outputs)}
    states = []
    for variable in variables_of(file).values():
        if variable.assigned:
            name = _free(variable.name, taken)
            following = _free(f"{name}_next", taken)
            value = variable.initial
            spec = TensorSpec(name, value.dtype.name, value.shape, variable.quantization, following)
            output = replace(spec, name=following, state=None)
            states.append(State(variable, spec, output))
    return tuple(states)


def handles_of(graph: TfliteGraph) -> dict[int, VariableKey]:
    """Return the variable of each tensor that stands for one."""
    return {
        operator.outputs[0]: operator.variable
        for operator in graph.operators
        if operator.name == "VAR_HANDLE" and operator.outputs
    }


def _assignments(graph: TfliteGraph) -> Iterator[tuple[VariableKey, int]]:
    """Yield the variable and the tensor of each assignment."""
    handles = handles_of(graph)
    for operator in graph.operators:
        if operator.name == "ASSIGN_VARIABLE" and operator.inputs[0] in handles:
            yield handles[operator.inputs[0]], operator.inputs[1]


def why_uninitialised(file: TfliteFile, operator: TfliteOperator) -> str | None:
    """Say why variables have no known first value, at the operators that need one."""
    if operator.name == "CALL_ONCE":
        once = file.graphs[operator.graphs[0]]
        others = sorted({one.name for one in once.operators} - INITIALISING)
        if others:
            return f"it prepares more than variables when the model is loaded: {', '.join(others)}"
    if operator.name == "VAR_HANDLE" and operator.variable not in variables_of(file):
        return "no constant is the first value of its variable"
    return None


def _free(name: str, taken: set[str]) -> str:
    fresh, count = name, 1
    while fresh in taken:
        count += 1
        fresh = f"{name}_{count}"
    taken.add(fresh)
    return fresh


def first_values(file: TfliteFile) -> dict[str, Array]:
    """Return the first value of each input that is state."""
    return {state.input.name: np.array(state.variable.initial) for state in states_of(file)}
