"""Put a check before every operator that reads or writes at indices from another tensor.

Every importer ends with it. Where the format lets indices count from the end, the importer has put
the check itself. Constants, and indices that sorting or searching made, are checked at compile time
and cost nothing at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax

from edgekit.base.errors import EdgekitError
from edgekit.base.node_names import named_after
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.passes.indices import IndexRule, checked, counted_from_start, rule_of
from edgekit.compiler.rewriting import is_call, operator_of

_Extents = tuple[int, ...]
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        *("astype", "broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape"),
        *("squeeze", "strided_slice"),
    )
)
"""Operators that leave each index unchanged."""
_CONSTANT = "a constant"
_WITHIN = frozenset(f"relax.{name}" for name in ("argmax", "argmin", "argsort", "topk"))


def guard_indices(module: Any, names: Sequence[str]) -> Any:
    """Return the module with every index checked; `names` are those of the inputs, for errors."""
    guard = _Guard(module)
    # Functions that loops and branches run have what they read outside under the same names.
    inputs = {
        str(variable.name): name
        for variable, name in zip(module["main"].params, names, strict=False)
    }
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            guard.rewrite(variable, function, inputs)
    if guard.failure is not None:
        raise guard.failure
    guarded = guard.builder_.get()
    for name, value in (module.attrs or {}).items():
        guarded = guarded.with_attr(name, value)
    return relax.transform.DeadCodeElimination(["main"])(guarded)


@relax.expr_functor.mutator
class _Guard(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.failure: EdgekitError | None = None
        """The first error, raised after the walk: raised inside it, TVM's builder complains."""
        self._values: dict[Any, Any] = {}
        self._names: dict[Any, str] = {}

    def rewrite(self, variable: Any, function: Any, inputs: Mapping[str, str]) -> None:
        self._values = relax.analysis.get_var2val(function)
        names = ((one, inputs.get(str(one.name))) for one in function.params)
        self._names = {one: name for one, name in names if name is not None}
        self.builder_.update_func(variable, self.visit_expr(function))

    def visit_call_(self, call: Any) -> Any:
        try:
            return self._guarded(self.visit_expr_post_order(call), call)
        except EdgekitError as error:
            self.failure = self.failure or error
            return self.visit_expr_post_order(call)

    def _guarded(self, call: Any, before: Any) -> Any:
        rule = rule_of(call)
        if rule is not None:
            root = before.args[1].fields[0]
            rule = replace(rule, tensor=rule.tensor or self._name(root))
            given = constant_array(self._value(root))
            if given is None:
                return checked(call.args[1].fields[0], rule)
            array = counted_from_start(given, rule)
            return relax.const(array.astype(str(call.ty.dtype)), str(call.ty.dtype))
        operator = operator_of(call)
        if operator in COORDINATES:
            return self._bounded(call, *COORDINATES[operator])
        addressed = ADDRESSED.get(operator)
        if addressed is None:
            return call
        arguments = list(call.args)
        for place, part, extents in addressed(before):
            if part is None:
                arguments[place] = self._checked(before.args[place], arguments[place], extents)
            else:
                fields = list(self._fields(arguments[place]))
                old = self._fields(before.args[place])[part]
                fields[part] = self._checked(old, fields[part], extents)
                arguments[place] = relax.Tuple(fields)
        if operator == "relax.take":
            # TVM's faster mode prints a warning on the terminal for any indices.
            return relax.op.take(*arguments, axis=call.attrs.axis, mode="clip")
        if all(new.same_as(old) for new, old in zip(arguments, call.args, strict=True)):
            return call
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _bounded(self, call: Any, place: int, limit: float) -> Any:
        """Clamp coordinates to the limit and replace NaN: the kernel makes whole numbers of
        them."""
        kind = str(call.args[place].ty.dtype)
        given = call.args[place]
        is_number = relax.op.logical_not(relax.op.isnan(given))
        numbers = self.builder_.emit(relax.op.where(is_number, given, relax.const(-limit, kind)))
        arguments = list(call.args)
        arguments[place] = self.builder_.emit(relax.op.clip(numbers, -limit, limit))
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _fields(self, expression: Any) -> Sequence[Any]:
        value = expression
        while isinstance(value, relax.Var) and value in self._values:
            value = self._values[value]
        if isinstance(value, relax.Tuple):
            return list(value.fields)
        return [relax.TupleGetItem(expression, k) for k in range(len(expression.ty.fields))]

    def _checked(self, before: Any, now: Any, extents: _Extents) -> Any:
        """Return a checked operand: `before` in the old function, `now` in the new one."""
        moves: list[Any] = []
        root = before
        while True:
            value = self._value(root)
            if not _is_move(value, alone=len(extents) == 1):
                break
            moves.append(value)
            root = value.args[0]
        if _is_within(value, extents):
            return now
        rule = IndexRule(self._name(root), extents)
        given = constant_array(value)
        if given is not None:
            counted_from_start(given, rule)
            return now
        if not str(root.ty.dtype).startswith(("int", "uint")):
            return now  # A mask, or an operand that must be float.
        safe = self.builder_.emit(checked(self.visit_expr(root), rule))
        for move in reversed(moves):
            arguments = [safe, *(self.visit_expr(argument) for argument in move.args[1:])]
            safe = self.builder_.emit(relax.Call(move.op, arguments, move.attrs, move.ty_args))
        return safe

    def _name(self, root: Any) -> str:
        """Return the names of the tensors that the indices come from, as the model has them."""
        value = self._value(root)
        if _is_move(value, alone=True):
            return self._name(value.args[0])
        if is_call(value, "relax.concat"):
            parts = [self._name(part) for part in self._fields(value.args[0])]
            return ", ".join(dict.fromkeys(part for part in parts if part != _CONSTANT))
        if not isinstance(root, relax.Var):
            return _CONSTANT
        name = str(root.name)
        return self._names.get(root) or named_after(name) or name

    def _value(self, expression: Any) -> Any:
        while isinstance(expression, relax.Var) and expression in self._values:
            expression = self._values[expression]
        if isinstance(expression, relax.TupleGetItem):
            inner = self._value(expression.tuple_value)
            if isinstance(inner, relax.Tuple):
                return self._value(inner.fields[expression.index])
            if is_call(inner, "relax.topk") and expression.index == 1:
                return inner
        return expression


def _is_move(value: Any, *, alone: bool) -> bool:
    """Return whether an operator only moves values; `alone` allows moves of single indices."""
    if is_call(value, "relax.astype"):
        return str(value.args[0].ty.dtype).startswith(("int", "uint"))
    return alone and is_call(value, *_MOVES)


def _is_within(value: Any, extents: _Extents) -> bool:
    """Return whether the operator that made the values keeps them inside the extents."""
    if not operator_of(value):
        return False
    rule = rule_of(value)
    if rule is not None:
        return rule.extents == extents
    if not is_call(value, *_WITHIN) or len(extents) != 1:
        return False
    if is_call(value, "relax.topk") and str(value.attrs.ret_type) == "values":
        return False
    shape = [int(extent) for extent in value.args[0].ty.shape]
    axis = value.attrs.axis
    count = math.prod(shape) if axis is None else shape[int(axis)]
    return bool(count <= extents[0])


def _shape(expression: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in expression.ty.shape)


_Place = tuple[int, int | None, _Extents]
"""The argument, its field where it is a tuple, and the extents that it addresses."""


def _take(call: Any) -> list[_Place]:
    shape, axis = _shape(call.args[0]), call.attrs.axis
    return [(1, None, (math.prod(shape) if axis is None else shape[int(axis)],))]


def _along_axis(call: Any) -> list[_Place]:
    return [(1, None, (_shape(call.args[0])[int(call.attrs.axis)],))]


def _gather_nd(call: Any) -> list[_Place]:
    first, depth = int(call.attrs.batch_dims), _shape(call.args[1])[-1]
    return [(1, None, _shape(call.args[0])[first : first + depth])]


def _scatter_nd(call: Any) -> list[_Place]:
    return [(1, None, _shape(call.args[0])[: _shape(call.args[1])[-1]])]


def _each_axis(call: Any) -> list[_Place]:
    shape = _shape(call.args[0])
    count = len(call.args[1].ty.fields)
    return [(1, part, (shape[part],)) for part in range(count)]


def _reversed(call: Any) -> list[_Place]:
    """Return the place of the lengths, each of which may be the whole axis."""
    return [(1, None, (_shape(call.args[0])[int(call.attrs.seq_axis)] + 1,))]


ADDRESSED: Mapping[str, Callable[[Any], list[_Place]]] = {
    "relax.gather_elements": _along_axis,
    "relax.gather_nd": _gather_nd,
    "relax.index_put": _each_axis,
    "relax.index_tensor": _each_axis,
    "relax.reverse_sequence": _reversed,
    "relax.scatter_elements": _along_axis,
    "relax.scatter_nd": _scatter_nd,
    "relax.take": _take,
}
"""Operators of Relax that read or write at a tensor's values."""

COORDINATES: Mapping[str, tuple[int, float]] = {
    "relax.image.grid_sample": (1, 1e4),
    "relax.vision.roi_align": (1, 1e6),
}
"""Operators that read at float coordinates: the argument, and a bound far outside any image."""
