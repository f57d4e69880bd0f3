"""Convert the lowered module to a Program: steps on buffers, each with a name from the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.lower import Lowered
from edgekit.aot.names import Unique, identifier, layer_identifier
from edgekit.aot.operators import CheckIndices, LoopNest, Operator
from edgekit.aot.program import Buffer, Program, Step
from edgekit.aot.quantised.recognised import STEP_PREFIX
from edgekit.base.errors import BuildError, UnsupportedModelError
from edgekit.base.node_names import named_after
from edgekit.base.tvm_compat import constant_array
from edgekit.base.wording import counted
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of_type
from edgekit.compiler.passes.indices import IndexRule, rule_of
from edgekit.models.model import Model

_HINT = "docs/bare-metal.md says what a model for a microcontroller may use"


def read_program(name: str, model: Model, lowered: Lowered) -> Program:
    """Return the program; `name` is the C identifier with which all of its names begin."""
    reader = _Reader(lowered, name, len(model.inputs) + len(model.outputs))
    main = lowered.module["main"]
    for spec, variable in zip(model.inputs, main.params, strict=True):
        reader.take_input(spec.name, variable)
    for block in main.body.blocks:
        for binding in block.bindings:
            reader.take(binding)
    results = reader.results(main.body.body, [spec.name for spec in model.outputs])
    return Program(
        name=name,
        model_sha256=model.source.sha256,
        inputs=model.inputs,
        outputs=model.outputs,
        buffers=tuple(reader.buffers),
        steps=tuple(reader.steps),
        results=results,
    )


def _taken(name: str, ports: int) -> set[str]:
    """Return the names of the functions around the steps, and of their variables."""
    interface = {f"{name}_{word}" for word in ("run", "run_step", "step_name", "check")}
    types = {f"{name}_inputs", f"{name}_outputs"}
    variables = {f"{word}{k}" for word in ("in", "out") for k in range(ports)}
    return interface | types | variables | {"inputs", "outputs", "arena", "at", "step"}


@dataclass(frozen=True)
class _Constant:
    array: Any


class _Reader:
    def __init__(self, lowered: Lowered, name: str, ports: int) -> None:
        self._lowered = lowered
        self._values: dict[Any, Any] = {}
        """The index of a buffer, a constant, or a tuple of these, by variable."""
        self._buffer_names = Unique()
        self._step_names = Unique(_taken(name, ports))
        self._inputs = 0
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []

    def take_input(self, name: str, variable: Any) -> None:
        self._values[variable] = self._buffer(identifier(name), variable.ty)
        self._inputs = len(self.buffers)

    def take(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.Call):
            self._values[binding.var] = self._call(value, str(binding.var.name))
        else:
            self._values[binding.var] = self._value(value)

    def results(self, body: Any, names: Sequence[str]) -> tuple[int, ...]:
        """Return the buffer of each output: written by a step, and no other output's."""
        value = self._value(body)
        values = value if isinstance(value, tuple) else (value,)
        found: list[int] = []
        for name, result in zip(names, values, strict=True):
            is_own = isinstance(result, int) and result >= self._inputs and result not in found
            found.append(result if is_own else self._copy(result, name))
        return tuple(found)

    def _call(self, call: Any, variable: str) -> Any:
        operator = str(getattr(call.op, "name", ""))
        if operator == "relax.reshape":
            return self._view(self._value(call.args[0]), call)
        if operator not in ("relax.call_tir", "relax.call_dps_packed"):
            layer = named_after(variable) or variable
            raise UnsupportedModelError(
                f"{operator.removeprefix('relax.') or 'a function'} of {layer} has no form "
                "without TVM's runtime",
                hint=_HINT,
            )
        arguments = [self._value(argument) for argument in call.args[1].fields]
        kinds = call.ty_args[0]
        fields = list(kinds.fields) if isinstance(kinds, relax.TupleType) else [kinds]
        if operator == "relax.call_dps_packed":
            rule = rule_of(call)
            if rule is not None:
                return self._step(*_check(call, rule, arguments), fields, is_tuple=False)
            symbol = str(call.args[0].global_symbol)
            number = int(symbol.removeprefix(STEP_PREFIX))
            step = self._lowered.operators[number]
            layers = self._lowered.operator_layers[number]
        else:
            function = self._lowered.module[call.args[0]]
            layers = self._lowered.layers.get(str(call.args[0].name_hint), ())
            step = _nest(function, arguments, len(fields))
        inputs = tuple(argument for argument in arguments if isinstance(argument, int))
        return self._step(step, inputs, layers, fields, isinstance(kinds, relax.TupleType))

    def _step(
        self,
        operator: Operator,
        inputs: tuple[int, ...],
        layers: tuple[str, ...],
        kinds: Sequence[Any],
        is_tuple: bool,
    ) -> Any:
        wanted = layer_identifier(next((layer for layer in layers if layer), "step"))
        name = self._step_names.name(wanted)
        outputs = tuple(
            self._buffer(name if len(kinds) == 1 else f"{name}_{k}", kind)
            for k, kind in enumerate(kinds)
        )
        reason = self._reason(layers) if isinstance(operator, LoopNest) else ""
        self.steps.append(Step(name, operator, inputs, outputs, layers, reason))
        return outputs if is_tuple else outputs[0]

    def _reason(self, layers: tuple[str, ...]) -> str:
        """Return why integer kernels did not take these layers of a quantised model."""
        for declined in self._lowered.declined:
            if set(declined.layers) & set(layers):
                return declined.reason
        return ""

    def _view(self, value: Any, call: Any) -> Any:
        if isinstance(value, _Constant):
            return _Constant(value.array.reshape(_shape(call.ty)))
        return value

    def _copy(self, result: Any, name: str) -> int:
        """Copy an output that is an input, a constant or another output to memory of its own."""
        if isinstance(result, _Constant):
            shape, dtype = result.array.shape, str(result.array.dtype)
        else:
            shape, dtype = self.buffers[result].shape, self.buffers[result].dtype
        nest = LoopNest(
            _copying(shape, dtype), (result.array,) if isinstance(result, _Constant) else ()
        )
        inputs = () if isinstance(result, _Constant) else (result,)
        step_name = self._step_names.name(f"copy_{identifier(name).lower()}")
        buffer = self._add(step_name, dtype, tuple(shape))
        self.steps.append(Step(step_name, nest, inputs, (buffer,), (name,)))
        return buffer

    def _value(self, expression: Any) -> Any:
        if isinstance(expression, relax.Var):
            return self._values[expression]
        array = constant_array(expression)
        if array is not None:
            return _Constant(array)
        if isinstance(expression, relax.Tuple):
            return tuple(self._value(field) for field in expression.fields)
        if isinstance(expression, relax.TupleGetItem):
            return self._value(expression.tuple_value)[int(expression.index)]
        raise BuildError(
            f"a {type(expression).__name__} is left in the lowered model",
            hint="this is a fault of edgekit: please report it with the model",
        )

    def _buffer(self, name: str, kind: Any) -> int:
        return self._add(name, str(kind.dtype), _shape(kind))

    def _add(self, name: str, dtype: str, shape: tuple[int, ...]) -> int:
        if dtype not in C_TYPES:
            raise UnsupportedModelError(
                f"{name} holds {dtype}, which C99 has no type for", hint=_HINT
            )
        if math.prod(shape) == 0:
            raise UnsupportedModelError(
                f"{name} has the shape {list(shape)} and so no element", hint=_HINT
            )
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size >= 1 << 31:
            raise UnsupportedModelError(
                f"{name} would take {counted(size, 'byte')}, more than a microcontroller addresses",
                hint="give the model a smaller input",
            )
        self.buffers.append(Buffer(self._buffer_names.name(name), dtype, shape, size))
        return len(self.buffers) - 1


def _check(
    call: Any, rule: IndexRule, arguments: Sequence[Any]
) -> tuple[Operator, tuple[int, ...], tuple[str, ...]]:
    (given,) = arguments
    if isinstance(given, _Constant):
        raise BuildError(
            f"the indices '{rule.tensor}' are known and were not checked when the model was read",
            hint="this is a fault of edgekit: please report it with the model",
        )
    operator = CheckIndices(
        math.prod(_shape(call.ty)),
        str(call.args[1].fields[0].ty.dtype),
        str(call.ty.dtype),
        rule.extents,
        rule.counts_from_end,
    )
    return operator, (given,), (rule.tensor,)


def _shape(kind: Any) -> tuple[int, ...]:
    try:
        return shape_of_type(kind)
    except ShapeDependsOnDataError as error:
        raise UnsupportedModelError(
            "the model has a tensor whose shape is known only when it runs", hint=_HINT
        ) from error


def _nest(function: Any, arguments: Sequence[Any], outputs: int) -> LoopNest:
    """Return the loop nest with its parameters in the order inputs, constants, outputs."""
    parameters = list(function.params)
    if len(parameters) != len(arguments) + outputs:
        raise UnsupportedModelError(
            "the model has a tensor whose shape is known only when it runs", hint=_HINT
        )
    places = range(len(arguments))
    order = [k for k in places if isinstance(arguments[k], int)]
    constants = [k for k in places if isinstance(arguments[k], _Constant)]
    ordered = [parameters[k] for k in (*order, *constants)] + parameters[len(arguments) :]
    return LoopNest(
        tirx.PrimFunc(ordered, function.body, function.ret_type, function.attrs),
        tuple(np.ascontiguousarray(arguments[k].array) for k in constants),
    )


def _copying(shape: Sequence[int], dtype: str) -> Any:
    from tvm import te

    source = te.placeholder(tuple(shape), dtype, "source")
    copy = te.compute(tuple(shape), lambda *at: source(*at), "copy")
    return te.create_prim_func([source, copy])
