"""Kernels that may write over what they read: element by element, each at its own place.

Two arguments that share memory would break the promise to LLVM that no two of a kernel's pointers
overlap. So such a kernel gets one argument less: it reads from the memory that it writes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from edgekit.compiler.rewriting import nodes_in

_KINDS = frozenset(
    {
        tirx.ForKind.SERIAL,
        tirx.ForKind.PARALLEL,
        tirx.ForKind.VECTORIZED,
        tirx.ForKind.UNROLLED,
    }
)


@dataclass(frozen=True)
class _Step:
    """A block that stores one element, at the place that its variables give."""

    realize: Any
    loops: tuple[Any, ...]
    variables: tuple[Any, ...]

    @property
    def store(self) -> Any:
        return self.realize.block.body


def overwritable(kernel: Any) -> frozenset[int]:
    """Return the places of the arguments that a kernel may overwrite with its result.

    Computed once the loops have their order. Such an argument is read only by the block that stores
    the result, each element at the same place and once.
    """
    result = kernel.params[-1]
    steps = [step for step in _steps_of(kernel) if step.store.buffer.same_as(result)]
    if len(steps) != 1 or not _runs_once(steps[0]):
        return frozenset()
    step = steps[0]
    block = step.realize.block
    alone = _mentions(kernel.body, result) == _mentions(block, result)
    if not alone or _mentions(step.store, result) != 1 or _points(step.store):
        return frozenset()
    analyzer = _analyzer(step)
    return frozenset(
        place
        for place, argument in enumerate(kernel.params[:-1])
        if tvm_ffi.structural_equal(argument.ty, result.ty)
        and _mentions(kernel.body, argument) == _mentions(block, argument)
        and _mentions(step.store, argument)
        == sum(
            load.source.same_as(argument) and _same(analyzer, load.indices, step.variables)
            for load in nodes_in(step.store, ir.TensorLoad)
        )
    )


def pointwise(kernel: Any) -> frozenset[int]:
    """Return the arguments whose elements each affect only the result's element at the same place.

    Computed before the loops have an order; never fewer than `overwritable` finds later.
    """
    made = {step.store.buffer: step for step in _steps_of(kernel)}
    result = kernel.params[-1]
    if result not in made:
        return frozenset()
    analyzer = _analyzer(made[result])
    variables = made[result].variables
    candidates = {p for p in kernel.params[:-1] if tvm_ffi.structural_equal(p.ty, result.ty)}
    reached = _reached(made, candidates)
    read: set[tuple[Any, str]] = set()
    blocks: dict[Any, Any] = {}

    def follow(step: _Step, places: Sequence[Any]) -> None:
        blocks[step.store.buffer] = step.realize.block
        for load in nodes_in(step.store, ir.TensorLoad):
            # A stack of shifted reads reaches ever more places: only what still counts is followed.
            if not candidates & reached.get(load.source, frozenset()):
                continue
            indices = [
                analyzer.simplify(_put(index, step.variables, places)) for index in load.indices
            ]
            key = (load.source, str(indices))
            if key in read:
                continue
            read.add(key)
            if load.source in made:
                follow(made[load.source], indices)
            elif not _same(analyzer, indices, variables):
                candidates.discard(load.source)

    follow(made[result], variables)
    return frozenset(
        place
        for place, argument in enumerate(kernel.params[:-1])
        if argument in candidates
        and _mentions(kernel.body, argument)
        == sum(_mentions(block, argument) for block in blocks.values())
    )


def _reached(made: Mapping[Any, _Step], candidates: Iterable[Any]) -> Mapping[Any, frozenset[Any]]:
    """Return the candidates that each buffer is computed from; producers come first in a kernel."""
    reached = {candidate: frozenset([candidate]) for candidate in candidates}
    for buffer, step in made.items():
        reached[buffer] = frozenset().union(
            *(reached.get(load.source, frozenset()) for load in nodes_in(step.store, ir.TensorLoad))
        )
    return reached


def in_place(kernel: Any, place: int) -> Any:
    """Return the kernel without that argument, whose elements are in the result's memory."""
    argument, result = kernel.params[place], kernel.params[-1]
    return tirx.PrimFunc(
        [parameter for parameter in kernel.params if not parameter.same_as(argument)],
        _put(kernel.body, [argument], [result]),
        kernel.ret_type,
        kernel.attrs,
    )


def _steps_of(kernel: Any) -> list[_Step]:
    """Return the kernel's stores; none where it has anything but loops and blocks."""
    root = kernel.body
    if not isinstance(root, s_tir.SBlockRealize) or root.block.match_buffers:
        return []
    found: list[_Step] = []

    def familiar(statement: Any, loops: tuple[Any, ...]) -> bool:
        if isinstance(statement, tirx.SeqStmt):
            return all(familiar(part, loops) for part in statement.seq)
        if isinstance(statement, tirx.For):
            return statement.kind in _KINDS and familiar(statement.body, (*loops, statement))
        if isinstance(statement, s_tir.SBlockRealize):
            step = _step(statement, loops)
            found.extend([step] if step is not None else [])
            return True
        return False

    return found if familiar(root.block.body, ()) else []


def _step(realize: Any, loops: tuple[Any, ...]) -> _Step | None:
    block = realize.block
    store = block.body
    if block.match_buffers or block.alloc_buffers or block.init is not None:
        return None
    if not isinstance(store, tirx.BufferStore):
        return None
    variables = tuple(variable.var for variable in block.iter_vars)
    each_once = len(store.indices) == len(variables) and all(
        any(variable.same_as(index) for index in store.indices) for variable in variables
    )
    over_results = all(v.iter_type == tirx.IterVar.DataPar for v in block.iter_vars)
    return _Step(realize, loops, tuple(store.indices)) if each_once and over_results else None


def _runs_once(step: _Step) -> bool:
    """Return whether no two iterations of the loops store the same element."""
    domains = {
        loop.loop_var: ir.Range.from_min_extent(loop.min, loop.extent) for loop in step.loops
    }
    found = sym.detect_iter_map(
        step.realize.iter_values, domains, step.realize.predicate, "bijective"
    )
    return len(found.indices) == len(step.variables)


def _analyzer(step: _Step) -> Any:
    analyzer = sym.Analyzer()
    for variable in step.realize.block.iter_vars:
        analyzer.bind(variable.var, variable.dom)
    return analyzer


def _same(analyzer: Any, indices: Sequence[Any], variables: Sequence[Any]) -> bool:
    return all(
        analyzer.can_prove_equal(index, variable)
        for index, variable in zip(indices, variables, strict=True)
    )


def _points(node: Any) -> bool:
    """Return whether an address is taken, through which other elements could be reached."""
    kinds = [call.ty for call in nodes_in(node, ir.Call)]
    return any(not isinstance(kind, ir.PrimType) or "handle" in str(kind.dtype) for kind in kinds)


def _mentions(node: Any, variable: Any) -> int:
    return sum(other.same_as(variable) for other in nodes_in(node, ir.Var))


def _put(node: Any, variables: Sequence[Any], values: Sequence[Any]) -> Any:
    def put(variable: Any) -> Any:
        for old, new in zip(variables, values, strict=True):
            if variable.same_as(old):
                return new
        return variable

    return tvm_ffi.structural_map(node, [(ir.Var, put)])
