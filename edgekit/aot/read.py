"""Read the lowered Relax module as a Program: steps on buffers, each with a name from the model.

Programs in C and in machine code are read alike. Their `Rules` say what a call becomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import relax

from edgekit.aot.names import Unique, identifier, layer_identifier
from edgekit.aot.operators import Argument, Branch, Loop, Operator, Weight
from edgekit.aot.program import Buffer, Program, Step
from edgekit.base.arrays import numpy_dtype
from edgekit.base.errors import BuildError
from edgekit.base.node_names import nodes_of
from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.loops import LoopRule, Rule, control_of
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of_type
from edgekit.compiler.passes.indices import IndexRule, rule_of
from edgekit.models.model import Model

_UNKNOWN_SHAPE = "a tensor whose shape is known only when it runs"


class NeedsRuntimeError(Exception):
    """The module has something, named by the message, that only TVM's runtime can do."""


class Rules(Protocol):
    """What calls become in one kind of program. Operands are in the order of the call."""

    reserved: frozenset[str]
    """Names that no step may have."""

    def kernel(self, name: str, operands: Sequence[Argument], outputs: int) -> Operator: ...

    def external(
        self, symbol: str, operands: Sequence[Argument]
    ) -> tuple[Operator, tuple[str, ...]]:
        """Return the operator, and its layers where they are known."""
        ...

    def indices(self, rule: IndexRule, given: str, result: str, elements: int) -> Operator: ...

    def copy(self, operand: Argument, shape: tuple[int, ...], dtype: str) -> Operator: ...

    def reason(self, operator: Operator, layers: tuple[str, ...]) -> str:
        """Return why integer kernels did not take these layers of a quantised model."""
        ...

    def check(self, buffer: Buffer) -> None:
        """Raise an error for a buffer that such a program can't have."""
        ...


def read_program(name: str, model: Model, module: Any, rules: Rules) -> Program:
    """Return the program; raise NeedsRuntimeError where it has no such form."""
    reader = _Reader(module, rules, Unique(rules.reserved))
    ports = _Ports(name, model.source.sha256, model.inputs, model.outputs)
    try:
        return reader.program(module["main"], ports)
    except ShapeDependsOnDataError as error:
        raise NeedsRuntimeError(_UNKNOWN_SHAPE) from error


@dataclass(frozen=True)
class _Ports:
    """A program without its steps."""

    name: str
    model_sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class _Reader:
    def __init__(self, module: Any, rules: Rules, step_names: Unique, prefix: str = "") -> None:
        self._module = module
        self._rules = rules
        self._prefix = prefix
        """What the name of each step begins with."""
        self._values: dict[Any, Any] = {}
        """The index of a buffer, a constant, or a tuple of these, by variable."""
        self._buffer_names = Unique()
        self._step_names = step_names
        self._inputs = 0
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []

    def program(self, function: Any, ports: _Ports) -> Program:
        for spec, variable in zip(ports.inputs, function.params, strict=True):
            self.take_input(spec.name, variable)
        for block in function.body.blocks:
            for binding in block.bindings:
                self.take(binding)
        results = self.results(function.body.body, [spec.name for spec in ports.outputs])
        return Program(
            name=ports.name,
            model_sha256=ports.model_sha256,
            inputs=ports.inputs,
            outputs=ports.outputs,
            buffers=tuple(self.buffers),
            steps=tuple(self.steps),
            results=results,
            ports_outside=bool(self._prefix),
        )

    def take_input(self, name: str, variable: Any) -> None:
        self._values[variable] = self._buffer(identifier(name), variable.ty)
        self._inputs = len(self.buffers)

    def take(self, binding: Any) -> None:
        if not isinstance(binding, relax.VarBinding):
            raise NeedsRuntimeError(_UNKNOWN_SHAPE)
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
            found.append(result if is_own else self._copied(result, name))
        return tuple(found)

    def _call(self, call: Any, variable: str) -> Any:
        operator = str(getattr(call.op, "name", ""))
        layers = nodes_of(variable)
        if operator == "relax.reshape":
            value = self._value(call.args[0])
            shape = shape_of_type(call.ty)
            return Weight(value.array.reshape(shape)) if isinstance(value, Weight) else value
        if operator not in ("relax.call_tir", "relax.call_dps_packed"):
            word = operator.removeprefix("relax.") or "a function"
            raise NeedsRuntimeError(f"{word} of {', '.join(layers) or variable}")
        values = [self._value(argument) for argument in call.args[1].fields]
        inputs = tuple(value for value in values if isinstance(value, int))
        places = iter(range(len(inputs)))
        operands = [next(places) if isinstance(value, int) else value for value in values]
        kinds = call.ty_args[0]
        fields = list(kinds.fields) if isinstance(kinds, relax.TupleType) else [kinds]
        rule, control = rule_of(call), control_of(call)
        made: Operator
        if control is not None:
            return self._control(control, operands, inputs, layers, call)
        if rule is not None:
            if not inputs:
                raise BuildError(
                    f"the indices '{rule.tensor}' are known and were not checked when the model "
                    "was read",
                    hint="this is a fault of edgekit: please report it with the model",
                )
            given = str(call.args[1].fields[0].ty.dtype)
            elements = math.prod(shape_of_type(call.ty))
            made, name = self._rules.indices(rule, given, str(call.ty.dtype), elements), "indices"
            layers = (rule.tensor,) if rule.tensor else layers
        elif operator == "relax.call_tir":
            name = str(call.args[0].name_hint)
            made = self._rules.kernel(name, operands, len(fields))
        else:
            name = str(call.args[0].global_symbol)
            made, known = self._rules.external(name, operands)
            layers = known or layers
        layers = layers or (name,)
        outputs = self._step(self._step_name(layers), made, inputs, layers, fields)
        return outputs if isinstance(kinds, relax.TupleType) else outputs[0]

    def _control(
        self,
        rule: Rule,
        operands: Sequence[Argument],
        inputs: tuple[int, ...],
        layers: tuple[str, ...],
        call: Any,
    ) -> Any:
        is_loop = isinstance(rule, LoopRule)
        layers = layers or ("loop" if is_loop else "branch",)
        name = self._step_name(layers)
        prefixes = [f"{name}_"] if is_loop else [f"{name}_{word}_" for word in ("then", "else")]
        bodies = tuple(
            self._body(name, prefix, self._module[body])
            for prefix, body in zip(prefixes, rule.bodies, strict=True)
        )
        made: Operator
        if isinstance(rule, LoopRule):
            made = Loop(rule, tuple(operands), bodies)
        else:
            made = Branch(rule, tuple(operands), bodies)
        kinds = call.ty_args[0]
        if not isinstance(kinds, relax.TupleType):
            return self._step(name, made, inputs, layers, [kinds])[0]
        return self._step(name, made, inputs, layers, list(kinds.fields))

    def _body(self, name: str, prefix: str, function: Any) -> Program:
        kinds = function.ret_ty
        results = list(kinds.fields) if isinstance(kinds, relax.TupleType) else [kinds]
        ports = _Ports(
            name,
            "",
            tuple(_spec(f"given_{k}", one.ty) for k, one in enumerate(function.params)),
            tuple(_spec(f"made_{k}", kind) for k, kind in enumerate(results)),
        )
        reader = _Reader(self._module, self._rules, self._step_names, prefix)
        return reader.program(function, ports)

    def _step_name(self, layers: tuple[str, ...]) -> str:
        wanted = next((layer for layer in layers if layer), "step")
        return self._step_names.name(self._prefix + layer_identifier(wanted))

    def _step(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[int, ...],
        layers: tuple[str, ...],
        kinds: Sequence[Any],
    ) -> tuple[int, ...]:
        outputs = tuple(
            self._buffer(name if len(kinds) == 1 else f"{name}_{k}", kind)
            for k, kind in enumerate(kinds)
        )
        reason = self._rules.reason(operator, layers)
        self.steps.append(Step(name, operator, inputs, outputs, layers, reason))
        return outputs

    def _copied(self, result: Any, name: str) -> int:
        """Copy an output that is an input, a constant or another output to memory of its own."""
        if isinstance(result, Weight):
            shape, dtype = result.array.shape, str(result.array.dtype)
        else:
            shape, dtype = self.buffers[result].shape, self.buffers[result].dtype
        operand: Argument = result if isinstance(result, Weight) else 0
        inputs = () if isinstance(result, Weight) else (result,)
        step = self._step_names.name(f"{self._prefix}copy_{identifier(name).lower()}")
        buffer = self._add(step, dtype, shape)
        copy = self._rules.copy(operand, tuple(shape), dtype)
        self.steps.append(Step(step, copy, inputs, (buffer,), (name,)))
        return buffer

    def _value(self, expression: Any) -> Any:
        if isinstance(expression, relax.Var):
            return self._values[expression]
        array = constant_array(expression)
        if array is not None:
            return Weight(array)
        if isinstance(expression, relax.Tuple):
            return tuple(self._value(field) for field in expression.fields)
        if isinstance(expression, relax.TupleGetItem):
            return self._value(expression.tuple_value)[int(expression.index)]
        raise NeedsRuntimeError(f"a {type(expression).__name__}")

    def _buffer(self, name: str, kind: Any) -> int:
        return self._add(name, str(kind.dtype), shape_of_type(kind))

    def _add(self, name: str, dtype: str, shape: Sequence[int]) -> int:
        size = math.prod(shape) * numpy_dtype(dtype).itemsize
        buffer = Buffer(self._buffer_names.name(name), dtype, tuple(shape), size)
        self._rules.check(buffer)
        self.buffers.append(buffer)
        return len(self.buffers) - 1


def _spec(name: str, kind: Any) -> TensorSpec:
    return TensorSpec(name, str(kind.dtype), shape_of_type(kind))
