"""Loops and branches: functions of the module that a call repeats, or of which it runs one.

Passes work on these functions as they do on `main`. A program calls a loop's function with pointers
moved by a slice for each iteration (aot/); for TVM's virtual machine loops are written out, and
both functions of a branch are computed (passes/loops.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

BODY = "loop_"
"""What the names of functions begin with that loops and branches run."""
_LOOP = "edgekit.loop:"
_BRANCH = "edgekit.branch:"


class NoLoopError(Exception):
    """The body can't be repeated as it is, such as one whose states change their shape."""


@dataclass(frozen=True)
class LoopRule:
    """How a function is repeated.

    The call's arguments are the sliced tensors, the states before the first iteration, and what
    stays the same; its results are the states after the last iteration, then the stacked tensors.
    The function's parameters are a slice of each sliced tensor, the states, and what stays the
    same; its results are the next states, then a piece of each stacked tensor.
    """

    body: str
    """The function's name in the module."""
    count: int | None
    """The number of iterations, one or more; None where only data ends the loop."""
    sliced: tuple[bool, ...]
    """Whether the last slice comes first, by sliced tensor. Slices lie along axis 0."""
    states: int
    stacked: tuple[bool, ...]
    """Whether the last piece is made first, by stacked tensor."""
    data_ends: bool = False
    """Whether an iteration runs only while the first state, a boolean, is true. `count` is then the
    most iterations, and what is stacked beyond the last one has any value."""

    @property
    def symbol(self) -> str:
        return _LOOP + json.dumps(asdict(self))

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    @property
    def own(self) -> int:
        """The number of the call's first arguments that no parameter receives."""
        return 0

    @property
    def fixed(self) -> int:
        """The place of the first argument that the function gets as it is."""
        return len(self.sliced) + self.states

    @property
    def times(self) -> int:
        """The most times that the function runs; one where that is unknown."""
        return self.count or 1

    @property
    def times_unknown(self) -> bool:
        return self.data_ends

    def with_bodies(self, names: Sequence[str]) -> LoopRule:
        return replace(self, body=names[0])


@dataclass(frozen=True)
class BranchRule:
    """Which of two functions runs: the first where the call's first argument, a boolean, is true.

    The functions' parameters are the call's further arguments, and their results are the call's.
    """

    bodies: tuple[str, ...]

    @property
    def symbol(self) -> str:
        return _BRANCH + json.dumps(self.bodies)

    @property
    def own(self) -> int:
        return 1

    @property
    def fixed(self) -> int:
        return 1

    @property
    def times(self) -> int:
        return 1

    @property
    def times_unknown(self) -> bool:
        return False

    def with_bodies(self, names: Sequence[str]) -> BranchRule:
        return replace(self, bodies=tuple(names))


Rule = LoopRule | BranchRule


def control_of(call: Any) -> Rule | None:
    """Return how a call runs other functions; None for any other expression."""
    operator = getattr(call, "op", None)
    if not isinstance(operator, tvm.ir.Op) or operator.name != "relax.call_dps_packed":
        return None
    symbol = str(call.args[0].global_symbol)
    if symbol.startswith(_BRANCH):
        return BranchRule(tuple(json.loads(symbol.removeprefix(_BRANCH))))
    if not symbol.startswith(_LOOP):
        return None
    read = json.loads(symbol.removeprefix(_LOOP))
    sliced, stacked = tuple(read.pop("sliced")), tuple(read.pop("stacked"))
    return LoopRule(sliced=sliced, stacked=stacked, **read)


def controls_in(function: Any) -> Iterator[tuple[Any, Rule]]:
    """Yield the calls in a function that run other functions, with their rules."""
    for block in function.body.blocks:
        for binding in block.bindings:
            rule = control_of(binding.value)
            if rule is not None:
                yield binding.value, rule


def times_run(module: Any) -> dict[str, int]:
    """Return how often each function that a loop or a branch runs does so at most, when `main` runs
    once."""
    found: dict[str, int] = {}

    def visit(function: Any, times: int) -> None:
        for _, rule in controls_in(function):
            for body in rule.bodies:
                found[body] = found.get(body, 0) + times * rule.times
                visit(module[body], times * rule.times)

    visit(module["main"], 1)
    return found


@dataclass(frozen=True)
class Sliced:
    """A tensor of which each iteration gets a slice along axis 0."""

    tensor: Any
    backwards: bool = False


Body = Callable[[list[Any], list[Any]], tuple[Sequence[Any], Sequence[Any]]]
"""A function from slices and states to the next states and the pieces."""


def emit_loop(
    builder: Any,
    times: int | None,
    sliced: Sequence[Sliced],
    states: Sequence[Any],
    body: Body,
    stacked: Sequence[bool],
    *,
    data_ends: bool = False,
) -> list[Any]:
    """Emit a loop; return the last states and the stacked tensors.

    `body` emits into the same builder, and may use any value outside. What it computes of those
    alone is computed once, before the loop, unless `data_ends` it, perhaps before the first
    iteration. Raises NoLoopError, and what `body` raises.
    """
    slices = [_slice_of(one.tensor) for one in sliced]
    given = [relax.Var("state", state.ty) for state in states]
    pieces: Sequence[Any] = ()

    def results() -> Sequence[Any]:
        nonlocal pieces
        after, pieces = body(list(slices), list(given))
        return after

    block, after = _emitted(builder, [*slices, *given], results)
    for before, state in zip(states, after, strict=True):
        if not tvm_ffi.structural_equal(before.ty, state.ty):
            raise NoLoopError("a state changes its type")
    # A state that no iteration changes is no state.
    kept = [k for k, state in enumerate(after) if not state.same_as(given[k])]
    unchanged = {v: states[k] for k, v in enumerate(given) if k not in kept}
    own = [*slices, *(given[k] for k in kept)]
    if not data_ends:
        block = _without_invariants(builder, block, own)
    sequence = put(_closed(block, [*(after[k] for k in kept), *pieces]), unchanged)
    outside = _outside([sequence], own)
    name = _added(builder, sequence, own, outside)
    backwards = tuple(one.backwards for one in sliced)
    rule = LoopRule(name, times, backwards, len(kept), tuple(stacked), data_ends)
    arguments = [*(one.tensor for one in sliced), *(states[k] for k in kept), *outside]
    kinds = [states[k].ty for k in kept] + [_stack_of(piece.ty, times) for piece in pieces]
    found = iter(_called(builder, rule, arguments, kinds))
    return [next(found) if k in kept else states[k] for k in range(len(states))] + list(found)


def emit_branch(
    builder: Any,
    condition: Any,
    branches: Sequence[Callable[[], Sequence[Any]]],
) -> list[Any]:
    """Emit two branches of which one runs; return the results. `condition` is a boolean scalar.

    Branches emit into the same builder, and may use any value outside. Where they compute nothing,
    one result is selected. Raises NoLoopError where they differ in types, and what they raise.
    """
    blocks = [_emitted(builder, [], branch) for branch in branches]
    first, second = (results for _, results in blocks)
    pairs = zip(first, second, strict=True)
    if not all(tvm_ffi.structural_equal(one.ty, other.ty) for one, other in pairs):
        raise NoLoopError("its branches yield different types")
    same = {k for k, one in enumerate(first) if one.same_as(second[k])}
    apart = [k for k in range(len(first)) if k not in same]
    if not any(block.bindings for block, _ in blocks):
        chosen = {k: relax.op.where(condition, first[k], second[k]) for k in apart}
        found = iter([builder.emit(one) for one in chosen.values()])
    elif apart:
        sequences = [_closed(block, [results[k] for k in apart]) for block, results in blocks]
        outside = _outside(sequences, [])
        rule = BranchRule(tuple(_added(builder, one, [], outside) for one in sequences))
        kinds = [first[k].ty for k in apart]
        found = iter(_called(builder, rule, [condition, *outside], kinds))
    return [first[k] if k in same else next(found) for k in range(len(first))]


def _emitted(
    builder: Any, parameters: Sequence[Any], body: Callable[[], Sequence[Any]]
) -> tuple[Any, list[Any]]:
    """Return what the body emits as a block of its own, and its results: variables or constants."""
    builder.begin_scope(list(parameters))
    builder._begin_dataflow_block()
    try:
        results = [
            one if isinstance(one, (relax.Var, tvm.ir.GenericConst)) else builder.emit(one)
            for one in body()
        ]
    finally:
        block = builder._end_block()
        builder.end_scope()
    return block, results


def _closed(block: Any, results: Sequence[Any]) -> Any:
    """Return the block as a sequence that ends with a tuple of the results."""
    output = relax.Var("output", relax.TupleType([one.ty for one in results]))
    bindings = [*block.bindings, relax.VarBinding(output, relax.Tuple(list(results)))]
    return relax.SeqExpr([relax.DataflowBlock(bindings)], output)


def put(node: Any, values: Mapping[Any, Any]) -> Any:
    """Return an expression with variables replaced by values."""
    return tvm_ffi.structural_map(
        node, [(relax.Var, lambda variable: values.get(variable, variable))]
    )


def _outside(sequences: Sequence[Any], parameters: Sequence[Any]) -> list[Any]:
    """Return the variables that the sequences read and do not define."""
    read = [one for sequence in sequences for one in relax.analysis.free_vars(sequence)]
    return [one for one in dict.fromkeys(read) if one not in parameters]


def _added(builder: Any, sequence: Any, parameters: Sequence[Any], outside: Sequence[Any]) -> str:
    """Add a function to the builder's module that gets as parameters what it reads outside."""
    inside = [relax.Var(str(variable.name), variable.ty) for variable in outside]
    body = put(sequence, dict(zip(outside, inside, strict=True)))
    kind = sequence.body.ty
    return add_body(builder, relax.Function([*parameters, *inside], body, kind))


def _called(builder: Any, rule: Rule, arguments: list[Any], kinds: list[Any]) -> list[Any]:
    # One result is no tuple.
    called = relax.call_dps_packed(
        rule.symbol, relax.Tuple(arguments), out_ty=kinds if len(kinds) > 1 else kinds[0]
    )
    result = builder.emit(called)
    if len(kinds) == 1:
        return [result]
    return [builder.emit(relax.TupleGetItem(result, k)) for k in range(len(kinds))]


def add_body(builder: Any, function: Any) -> str:
    """Add the function of a loop or a branch to the builder's module; return its name."""
    taken = {variable.name_hint for variable in builder.get().get_global_vars()}
    name = next(name for k in count() if (name := f"{BODY}{k}") not in taken)
    # No pass removes a function that has this attribute.
    builder.add_func(function.with_attr("global_symbol", name), name)
    return name


def _slice_of(tensor: Any) -> Any:
    shape = [int(extent) for extent in tensor.ty.shape]
    return relax.Var("slice", relax.TensorType(shape[1:], str(tensor.ty.dtype)))


def _stack_of(kind: Any, count: int | None) -> Any:
    if count is None:
        raise NoLoopError("nothing bounds the number of pieces that it collects")
    shape = [count, *(int(extent) for extent in kind.shape)]
    return relax.TensorType(shape, str(kind.dtype))


def _without_invariants(builder: Any, block: Any, own: Sequence[Any]) -> Any:
    """Move what depends on values outside alone, and on one at least, to the builder's block."""
    inside = set(own)
    bindings = []
    for binding in block.bindings:
        read = relax.analysis.free_vars(binding.value)
        if read and not inside.intersection(read) and isinstance(binding.var, relax.DataflowVar):
            builder.emit_normalized(binding)
        else:
            inside.add(binding.var)
            bindings.append(binding)
    return relax.DataflowBlock(bindings)
