"""Replace groups by calls of integer operators, in one walk through a function.

`recognise` is the entry point. It rewrites a module's main function so that every group that
integer kernels can compute is a call of `edgekit.step.N`, on int8 tensors with channels last; the
table says what each N is. Other groups stay unchanged, with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from edgekit.aot.operators import Dequantize, Lookup, Operator, Quantize
from edgekit.aot.quantised.elementwise import match_function, match_pair
from edgekit.aot.quantised.graph import (
    DEQUANTIZE,
    MOVES,
    QUANTIZE,
    Graph,
    Source,
    Target,
    UnfitError,
    is_call,
    operator_name,
)
from edgekit.aot.quantised.group import Context, Group, Matcher, ordered_last, to_last
from edgekit.aot.quantised.held import Held, Mover
from edgekit.aot.quantised.images import (
    MAX_POOLS,
    match_mean,
    match_pool,
    match_resize,
    match_softmax,
)
from edgekit.aot.quantised.joins import match_join
from edgekit.aot.quantised.layers import main_call, match_layer
from edgekit.aot.quantised.reasons import is_whole, reads_stored, stored_otherwise, words
from edgekit.aot.quantised.recognised import STEP_PREFIX, NotInteger, Recognised
from edgekit.aot.quantised.stored import clipped, match_stored
from edgekit.base.node_names import named_after, numbered
from edgekit.base.tvm_compat import as_constant
from edgekit.compiler.macs import shape_of
from edgekit.compiler.passes.litert_arithmetic import ARITHMETIC, LITERT

MATCHERS: tuple[Matcher, ...] = (
    match_layer,
    match_pair,
    match_pool,
    match_mean,
    match_softmax,
    match_join,
    match_resize,
    match_function,
)
_BYTES = ("int8", "uint8")
_ORDERED = frozenset(
    f"relax.{name}"
    for name in (
        *("maximum", "minimum", "max", "min", "strided_slice", "take", "tile", "repeat", "flip"),
        *("broadcast_to", "gather_elements", "gather_nd"),
    )
)
"""Operators that select values: in one quantisation they can select stored values."""


def recognise(module: Any) -> Recognised:
    """Rewrite a module as imported, before constants are folded."""
    module = relax.transform.CanonicalizeBindings()(module)
    function = module["main"]
    blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else []
    if not all(isinstance(block, relax.DataflowBlock) for block in blocks):
        return Recognised(module, {}, {}, ())  # Branches are no straight list of steps.
    rewriter = _Rewriter(function, (module.attrs or {}).get(ARITHMETIC) == LITERT)
    rewritten = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    rewritten.update_func(module.get_global_var("main"), rewriter.run())
    rewritten = relax.transform.DeadCodeElimination(["main"])(rewritten)
    used = _used_steps(rewritten["main"])
    return Recognised(
        rewritten,
        {number: rewriter.operators[number] for number in used},
        {number: rewriter.layers[number] for number in used},
        tuple(rewriter.declined.values()),
    )


def step_number(call: Any) -> int | None:
    """Return a call's entry in the table; None for any other call."""
    if not is_call(call, "relax.call_dps_packed"):
        return None
    name = str(call.args[0].global_symbol)
    return int(name.removeprefix(STEP_PREFIX)) if name.startswith(STEP_PREFIX) else None


def _used_steps(function: Any) -> tuple[int, ...]:
    numbers = [
        step_number(binding.value) for block in function.body.blocks for binding in block.bindings
    ]
    return tuple(number for number in numbers if number is not None)


class _Rewriter:
    def __init__(self, function: Any, litert: bool) -> None:
        self.operators: list[Operator] = []
        self.layers: list[tuple[str, ...]] = []
        self.declined: dict[tuple[tuple[str, ...], str], NotInteger] = {}
        self._function = function
        self._bindings = [binding for block in function.body.blocks for binding in block.bindings]
        bound = {binding.var: binding.value for binding in self._bindings}
        self._graph = Graph(bound)
        self._context = Context(self._graph, litert, self._is_last)
        self._builder = relax.BlockBuilder()
        self._mover = Mover(self._builder)
        self._as_model: dict[Any, Any] = {variable: variable for variable in function.params}
        self._held: dict[Any, Held] = {}
        self._lasts: dict[Any, Any] = {}
        self._inputs: dict[tuple[Any, float, int], Any] = {}
        self._ends = self._dequantised_outputs(bound)

    def run(self) -> Any:
        with self._builder.function("main", list(self._function.params)):
            with self._builder.dataflow():
                for binding in self._bindings:
                    self._bind(binding.var, binding.value)
                body = self._function.body.body
                # An output keeps the name of its layer.
                name = str(body.name) if isinstance(body, relax.Var) else ""
                result = self._builder.emit_output(self._renamed(body), name)
            self._builder.emit_func_output(result)
        function = self._builder.get()["main"]
        for name, value in (self._function.attrs or {}).items():
            function = function.with_attr(name, value)
        return function

    def _bind(self, variable: Any, value: Any) -> None:
        if value in self._held:
            self._held[variable] = self._held[value]
        elif not self._integers(variable, value):
            name = str(variable.name)
            self._as_model[variable] = self._builder.emit(self._renamed(value), name)

    def _integers(self, variable: Any, value: Any) -> bool:
        """Return whether the binding could be made without floats."""
        if is_call(value, QUANTIZE):
            return self._quantised(variable, value)
        if is_call(value, DEQUANTIZE):
            return variable in self._ends and self._dequantised(variable, value)
        dtype = str(getattr(getattr(value, "ty", None), "dtype", ""))
        if dtype not in _BYTES:
            return False
        if is_call(value, *MOVES) and self._graph.tensor(value.args[0]) in self._held:
            self._held[variable] = self._mover.moved(self._holding(value.args[0]), value)
            return True
        group = self._stored_group(value, Target(1.0, 0))
        if group is None:
            return False
        self._emit_group(variable, group, dtype == "uint8")
        return True

    def _stored_group(self, call: Any, target: Target) -> Group | None:
        """Match an operator on stored values, with the clipping after it."""
        if is_call(call, "relax.clip"):
            narrowed = clipped(call, target)
            inner = self._graph.value(call.args[0])
            if is_call(inner, QUANTIZE):
                made = self._graph.target(inner)
                if made is not None:
                    within = Target(made.scale, made.zero_point, narrowed.low, narrowed.high)
                    return self._match(self._graph.value(inner.args[0]), within)
            elif is_call(inner, *MAX_POOLS, "relax.astype", "relax.clip"):
                group = self._stored_group(inner, narrowed)
                if group is not None:
                    return group
            target = narrowed
        try:
            return match_stored(self._context, call, target)
        except UnfitError:
            return None

    def _quantised(self, variable: Any, call: Any) -> bool:
        target = self._graph.target(call)
        if target is None:
            value = self._graph.value(call.args[0])
            if reads_stored(self._graph, value):
                self._decline(variable, value, stored_otherwise(call))
            return False
        unsigned = str(call.attrs.out_dtype) == "uint8"
        if self._from_input(variable, call, target, unsigned):
            return True
        try:
            return self._quantised_value(variable, call.args[0], target, unsigned)
        except UnfitError as unfit:
            self._decline(variable, self._graph.value(call.args[0]), str(unfit))
            return False

    def _quantised_value(
        self, variable: Any, expression: Any, target: Target, unsigned: bool
    ) -> bool:
        """Apply the moves after an operator to stored values as well as to floats."""
        source = self._graph.source(expression)
        if source is not None and not source.is_constant and source.means_the_same(target):
            self._held[variable] = self._moved_source(source)
            return True
        moves = []
        value = self._graph.value(expression)
        while source is None and is_call(value, *MOVES):
            moves.append(value)
            value = self._graph.value(value.args[0])
        chosen = self._chosen(value, target)
        group = self._match(value, target, strict=True) if chosen is None else None
        if chosen is not None:
            self._held[variable] = Held(chosen, False, unsigned)
        elif group is not None:
            self._emit_group(variable, group, unsigned)
        else:
            if not reads_stored(self._graph, value):
                return False
            raise UnfitError(f"there is no integer kernel for {words(self._graph, value)}")
        for move in reversed(moves):
            self._held[variable] = self._mover.moved(self._held[variable], move)
        return True

    def _chosen(self, value: Any, target: Target) -> Any | None:
        """Apply an operator that only selects values to the stored ones."""
        if not is_call(value, *_ORDERED):
            return None
        arguments = []
        for argument in value.args:
            source = self._graph.source(argument)
            if source is None:
                if not is_whole(argument):
                    return None
                arguments.append(self._renamed(argument))
            elif source.means_the_same(target):
                arguments.append(self._argument(source, last=False))
            else:
                return None
        call = relax.Call(value.op, arguments, value.attrs, value.ty_args)
        return self._builder.emit(call)

    def _match(self, value: Any, target: Target, *, strict: bool = False) -> Group | None:
        try:
            for matcher in MATCHERS:
                group = matcher(self._context, value, target)
                if group is not None:
                    return group
        except UnfitError:
            if strict:
                raise
        return None

    def _decline(self, variable: Any, value: Any, reason: str) -> None:
        layers = self._graph.layers(variable) or (str(variable.name),)
        operator = operator_name(main_call(self._graph, value))
        self.declined.setdefault((layers, operator), NotInteger(layers, operator, reason))

    # The model's inputs and outputs.

    def _from_input(self, variable: Any, call: Any, target: Target, unsigned: bool) -> bool:
        """Quantise a float input before it is moved: a quarter of the bytes."""
        moves = []
        expression = call.args[0]
        while is_call(self._graph.value(expression), *MOVES):
            moves.append(self._graph.value(expression))
            expression = moves[-1].args[0]
        parameter = self._graph.tensor(expression)
        if parameter not in self._function.params or str(parameter.ty.dtype) != "float32":
            return False
        key = (parameter, target.scale, target.zero_point)
        if key not in self._inputs:
            shape = shape_of(parameter)
            operator = Quantize(math.prod(shape), target.scale, target.zero_point)
            layers = self._graph.layers(variable) or (str(parameter.name),)
            self._inputs[key] = self._step(operator, [parameter], shape, "int8", layers)
        held = Held(self._inputs[key], False, unsigned)
        for move in reversed(moves):
            held = self._mover.moved(held, move)
        self._held[variable] = held
        return True

    def _dequantised_outputs(self, bound: Any) -> frozenset[Any]:
        """Return the variables that leave the function unchanged or moved."""
        ends: set[Any] = set()
        pending = [self._function.body.body]
        while pending:
            current = pending.pop()
            if isinstance(current, relax.Tuple):
                pending.extend(current.fields)
            elif current in bound and current not in ends:
                ends.add(current)
                value = bound[current]
                pending.append(value.args[0] if is_call(value, *MOVES) else value)
        return frozenset(ends)

    def _dequantised(self, variable: Any, call: Any) -> bool:
        source = self._graph.source(variable)
        if source is None or source.is_constant:
            return False
        shape = shape_of(call)
        operator = Dequantize(math.prod(shape), source.scale, source.zero_point)
        layers = self._graph.layers(variable)
        name = named_after(str(variable.name))
        tensor = self._mover.first(self._moved_source(source))
        self._as_model[variable] = self._step(
            operator, [tensor], shape, "float32", layers or ((name,) if name else ())
        )
        return True

    # Calls.

    def _emit_group(self, variable: Any, group: Group, unsigned: bool) -> None:
        layers = self._graph.layers(variable)
        arguments = []
        for place, source in enumerate(group.inputs):
            tensor = self._argument(source, group.channels_last)
            before = group.before[place] if group.before else None
            if before is not None:
                tensor = self._table(before, tensor, layers)
            arguments.append(tensor)
        last = group.channels_last and len(group.shape) == len(group.inputs[0].shape)
        shape = ordered_last(group.shape) if last else group.shape
        result = self._step(group.operator, arguments, shape, "int8", layers)
        if group.then is not None:
            result = self._table(group.then, result, layers)
        self._held[variable] = Held(result, last, unsigned)

    def _table(self, table: Lookup, tensor: Any, layers: tuple[str, ...]) -> Any:
        return self._step(table, [tensor], shape_of(tensor), "int8", layers)

    def _step(
        self,
        operator: Operator,
        arguments: list[Any],
        shape: tuple[int, ...],
        dtype: str,
        layers: tuple[str, ...],
    ) -> Any:
        number = len(self.operators)
        self.operators.append(operator)
        self.layers.append(layers)
        call = relax.call_dps_packed(
            relax.ExternFunc(f"{STEP_PREFIX}{number}"),
            relax.Tuple(arguments),
            relax.TensorType(shape, dtype),
        )
        return self._builder.emit(call, numbered(layers[0], number) if layers else "")

    def _argument(self, source: Source, last: bool) -> Any:
        if source.is_constant:
            return as_constant(source.values())
        held = self._moved_source(source)
        if not last:
            return self._mover.first(held)
        if held.last:
            return held.tensor
        if source.moves:
            return self._mover.permuted(held.tensor, to_last(len(source.shape)))
        if source.tensor not in self._lasts:
            self._lasts[source.tensor] = self._mover.permuted(
                held.tensor, to_last(len(source.shape))
            )
        return self._lasts[source.tensor]

    # Stored values.

    def _is_last(self, source: Source) -> bool:
        held = self._held.get(source.tensor)
        return held is not None and held.last and not source.moves

    def _holding(self, expression: Any) -> Held:
        variable = self._graph.tensor(expression)
        if variable not in self._held:
            tensor = self._renamed(variable)
            unsigned = str(tensor.ty.dtype) == "uint8"
            if unsigned:
                tensor = self._mover.shifted(tensor, -128, "int8")
            self._held[variable] = Held(tensor, False, unsigned)
        return self._held[variable]

    def _moved_source(self, source: Source) -> Held:
        held = self._holding(source.tensor)
        for move in source.moves:
            held = self._mover.moved(held, move)
        return held

    # All other expressions, unchanged.

    def _renamed(self, expression: Any) -> Any:
        """Return an expression of the old function with the variables of the new one."""
        if isinstance(expression, relax.Var):
            if expression not in self._as_model and expression in self._held:
                held = self._held[expression]
                tensor = self._mover.first(held)
                if held.unsigned:
                    tensor = self._mover.shifted(tensor, 128, "uint8")
                self._as_model[expression] = tensor
            return self._as_model.get(expression, expression)
        rename: Callable[[Any], Any] = self._renamed
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([rename(field) for field in expression.fields])
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(rename(expression.tuple_value), expression.index)
        if isinstance(expression, relax.Call):
            return relax.Call(
                expression.op,
                [rename(argument) for argument in expression.args],
                expression.attrs,
                expression.ty_args,
            )
        return expression
