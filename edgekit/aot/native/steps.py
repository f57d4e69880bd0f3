"""The steps of a program in machine code, read from the lowered Relax module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm import relax

from edgekit.aot.names import Unique, identifier, layer_identifier
from edgekit.aot.operators import CallKernel, CallRegion, Copy, HoldIndices, Weight
from edgekit.aot.program import Buffer, Program, Step
from edgekit.base.arrays import numpy_dtype
from edgekit.base.node_names import named_after
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.macs import ShapeDependsOnDataError, shape_of_type
from edgekit.compiler.passes.indices import rule_of

if TYPE_CHECKING:
    from edgekit.models.model import Model


def read_steps(model: Model, module: Any) -> Program:
    """Read a scheduled module; NeedsRuntimeError if it has no such form."""
    if sum(isinstance(function, relax.Function) for function in module.functions.values()) != 1:
        raise NeedsRuntimeError("functions that call each other")
    reader = _Reader({})
    main = module["main"]
    try:
        for spec, variable in zip(model.inputs, main.params, strict=True):
            reader.take_input(spec.name, variable)
        for block in main.body.blocks:
            for binding in block.bindings:
                reader.take(binding)
        results = reader.results(main.body.body, [spec.name for spec in model.outputs])
    except ShapeDependsOnDataError as error:
        raise NeedsRuntimeError("a shape that depends on data") from error
    return Program(
        name=model.source.name,
        model_sha256=model.source.sha256,
        inputs=model.inputs,
        outputs=model.outputs,
        buffers=tuple(reader.buffers),
        steps=tuple(reader.steps),
        results=results,
    )


class _Reader:
    def __init__(self, layers: Mapping[str, Sequence[str]]) -> None:
        self._layers = layers
        self._values: dict[Any, Any] = {}
        """The index of a buffer, a constant, or a tuple of these, by variable."""
        self._buffer_names = Unique()
        self._step_names = Unique()
        self._inputs = 0
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []

    def take_input(self, name: str, variable: Any) -> None:
        self._values[variable] = self._buffer(identifier(name), variable.ty)
        self._inputs = len(self.buffers)

    def take(self, binding: Any) -> None:
        if not isinstance(binding, relax.VarBinding):
            raise NeedsRuntimeError(type(binding).__name__)
        value = binding.value
        if isinstance(value, relax.Call):
            self._values[binding.var] = self._call(value, str(binding.var.name))
        else:
            self._values[binding.var] = self._value(value)

    def results(self, body: Any, names: Sequence[str]) -> tuple[int, ...]:
        """Return the buffer of each output: written by a step, and no other output's."""
        value = self._value(body)
        found: list[int] = []
        for name, result in zip(
            names, value if isinstance(value, tuple) else (value,), strict=True
        ):
            is_own = isinstance(result, int) and result >= self._inputs and result not in found
            found.append(result if is_own else self._copied(result, name))
        return tuple(found)

    def _call(self, call: Any, variable: str) -> Any:
        operator = str(getattr(call.op, "name", ""))
        if operator == "relax.reshape":
            value = self._value(call.args[0])
            if isinstance(value, Weight):
                return Weight(value.array.reshape(shape_of_type(call.ty)))
            return value
        if operator not in ("relax.call_tir", "relax.call_dps_packed"):
            raise NeedsRuntimeError(operator or type(call.op).__name__)
        values = [self._value(argument) for argument in call.args[1].fields]
        kinds = call.ty_args[0]
        is_tuple = isinstance(kinds, relax.TupleType)
        fields = list(kinds.fields) if is_tuple else [kinds]
        inputs = tuple(dict.fromkeys(value for value in values if isinstance(value, int)))
        operands = tuple(
            inputs.index(value) if isinstance(value, int) else value for value in values
        )
        rule = rule_of(call)
        what: Any
        if rule is not None:
            given = str(call.args[1].fields[0].ty.dtype)
            elements = math.prod(shape_of_type(call.ty))
            what = HoldIndices(
                rule.tensor,
                rule.extents,
                rule.counts_from_end,
                given,
                str(call.ty.dtype),
                elements,
            )
            layers: Sequence[str] = (rule.tensor,)
            otherwise = variable
        elif operator == "relax.call_tir":
            kernel = otherwise = str(call.args[0].name_hint)
            what, layers = CallKernel(kernel, operands), self._layers.get(kernel, ())
        else:
            otherwise = str(call.args[0].global_symbol)
            what, layers = CallRegion(otherwise, operands), ()
        wanted = next((layer for layer in layers if layer), named_after(variable) or otherwise)
        outputs = self._step(what, inputs, fields, wanted, tuple(layers))
        return outputs if is_tuple else outputs[0]

    def _step(
        self, what: Any, inputs: tuple[int, ...], kinds: Sequence[Any], wanted: str, layers: Any
    ) -> tuple[int, ...]:
        name = self._step_names.name(layer_identifier(wanted))
        outputs = tuple(
            self._buffer(name if len(kinds) == 1 else f"{name}_{k}", kind)
            for k, kind in enumerate(kinds)
        )
        self.steps.append(Step(name, what, inputs, outputs, layers or (wanted,)))
        return outputs

    def _copied(self, result: Any, name: str) -> int:
        step = self._step_names.name(f"copy_{identifier(name).lower()}")
        if isinstance(result, Weight):
            buffer = self._add(step, str(result.array.dtype), result.array.shape)
            self.steps.append(Step(step, Copy((result,)), (), (buffer,), (name,)))
        else:
            source = self.buffers[result]
            buffer = self._add(step, source.dtype, source.shape)
            self.steps.append(Step(step, Copy((0,)), (result,), (buffer,), (name,)))
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
        raise NeedsRuntimeError(type(expression).__name__)

    def _buffer(self, name: str, kind: Any) -> int:
        return self._add(name, str(kind.dtype), shape_of_type(kind))

    def _add(self, name: str, dtype: str, shape: Sequence[int]) -> int:
        size = math.prod(shape) * numpy_dtype(dtype).itemsize
        self.buffers.append(Buffer(self._buffer_names.name(name), dtype, tuple(shape), size))
        return len(self.buffers) - 1


class NeedsRuntimeError(Exception):
    """The module is no straight line of calls on tensors whose shapes are known."""
