"""Decide which tensors share memory: those that are never alive together.

TVM's own plan takes tensors in the order in which they appear, and needs up to twice the bytes that
are alive at any time. This plan takes the largest first, so that every later one fits into an
existing block. Where another plan is better, it is used. Tensors begin where their block begins, as
kernels require.

A kernel that works element by element may overwrite an argument that it reads for the last time.
Where that saves memory it does so, in a form of its own (in_place.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import tvm
from tvm import ir, relax, tirx

from edgekit.compiler.passes.in_place import in_place, overwritable
from edgekit.compiler.rewriting import is_call

_ALLOCATION = "relax.builtin.alloc_tensor"
_ALIGNMENT = 64
_STORAGE = frozenset({"relax.memory.alloc_storage", "relax.vm.alloc_storage"})
"""Calls that allocate storage, before and after the conversion to the VM's own form."""


@dataclass(frozen=True)
class _Life:
    variables: tuple[Any, ...]
    """The tensors of one life: several where each is written over the one before."""
    size: int
    born: int
    dies: int

    def meets(self, other: _Life) -> bool:
        return self.born <= other.dies and other.born <= self.dies


@dataclass(frozen=True)
class _Overwriting:
    """A kernel's call whose result may lie where one of its arguments lies."""

    call: Any
    place: int
    argument: Any
    result: Any


@dataclass
class _Block:
    size: int
    lives: list[_Life] = field(default_factory=list)


@dataclass
class _Line:
    """A function that is one straight line."""

    bindings: tuple[Any, ...]
    owners: dict[Any, frozenset[Any]] = field(default_factory=dict)
    """The variables whose memory may be read through each variable."""
    sizes: dict[Any, int] = field(default_factory=dict)
    born: dict[Any, int] = field(default_factory=dict)
    dies: dict[Any, int] = field(default_factory=dict)
    touched_by: dict[Any, list[int]] = field(default_factory=dict)
    """The steps that touch each tensor; a binding that only renames it does not count."""
    leaving: frozenset[Any] = frozenset()


def planned_bytes(module: Any) -> int:
    """Return the size of all blocks that a planned module allocates. The caller's outputs, tensors
    whose size depends on data, and empty tensors don't count."""
    sizes: list[int] = []

    for function in module.functions.values():
        if not isinstance(function, relax.Function):
            continue
        values = relax.analysis.get_var2val(function)

        def look(expression: Any, values: Any = values) -> None:
            if is_call(expression, *_STORAGE):
                shape = expression.args[0]
                while isinstance(shape, relax.Var):  # a shape that stands in several places
                    shape = values[shape]
                if isinstance(shape, relax.ShapeExpr):
                    sizes.append(int(shape.values[0]))

        relax.analysis.post_order_visit(function, look)
    return sum(sizes)


def _bytes_of(blocks: Sequence[_Block]) -> int:
    return sum(block.size for block in blocks)


def _blocks_of(lives: Sequence[_Life]) -> list[_Block]:
    """Return the better of two plans: which it is depends on the network."""
    plans = (
        _placed(sorted(lives, key=lambda life: (-life.size, life.born))),
        _placed(sorted(lives, key=lambda life: life.born)),
    )
    return min(plans, key=_bytes_of)


def _placed(lives: Sequence[_Life]) -> list[_Block]:
    """Place each tensor in the block nearest to its size, which grows if it is smaller."""
    blocks: list[_Block] = []
    for life in lives:
        fitting = [block for block in blocks if not any(life.meets(o) for o in block.lives)]
        block = min(fitting, key=lambda block: abs(block.size - life.size), default=None)
        if block is None:
            block = _Block(0)
            blocks.append(block)
        block.lives.append(life)
        block.size = max(block.size, life.size)
    return blocks


def _line_of(function: Any) -> _Line | None:
    if not isinstance(function.body, relax.SeqExpr):
        return None
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    if any(isinstance(getattr(binding, "value", None), relax.If) for binding in bindings):
        return None
    line = _Line(tuple(bindings))
    for index, binding in enumerate(bindings):
        value = binding.value
        reads = _owners(value, line.owners)
        line.dies.update(dict.fromkeys(reads, index))
        if not isinstance(value, relax.Var):
            for owner in reads:
                line.touched_by.setdefault(owner, []).append(index)
        size = _size_of(value)
        if size is not None:
            line.owners[binding.var] = frozenset([binding.var])
            line.sizes[binding.var], line.born[binding.var] = size, index
            line.dies[binding.var] = index
        elif not _is_kernel(value):
            line.owners[binding.var] = reads
    line.leaving = _owners(function.body.body, line.owners)
    return line


def _lives_of(line: _Line, overwritings: Sequence[_Overwriting] = ()) -> list[_Life]:
    """Return the lives of the tensors that stay inside the function."""
    first: dict[Any, Any] = {}
    together = {v: [v] for v in line.sizes if v not in line.leaving}
    for overwriting in overwritings:
        (owner,) = line.owners[overwriting.argument]
        first[overwriting.result] = first.get(owner, owner)
        together[first[overwriting.result]].append(overwriting.result)
    return [
        _Life(
            tuple(variables),
            line.sizes[head],
            line.born[head],
            max(line.dies[v] for v in variables),
        )
        for head, variables in together.items()
        if head not in first
    ]


def _overwritings_of(line: _Line, module: Any) -> list[_Overwriting]:
    """Return kernels' overwritings of tensors that no library sees: it may keep a pointer."""
    kernels = {
        index: module[binding.value.op]
        for index, binding in enumerate(line.bindings)
        if _is_kernel(binding.value) and isinstance(module[binding.value.op], tirx.PrimFunc)
    }
    found = []
    for index, kernel in kernels.items():
        binding = line.bindings[index]
        *arguments, result = binding.value.args
        if not _can_share(line, result, kernels) or line.touched_by[result][0] != index:
            continue
        places = [
            place
            for place, owner in enumerate(_owners_alone(arguments, line))
            if owner is not None
            and _can_share(line, owner, kernels)
            and line.dies[owner] == index
            and line.sizes[owner] == line.sizes[result]
        ]
        place = min(overwritable(kernel).intersection(places), default=None) if places else None
        if place is not None:
            found.append(_Overwriting(binding.var, place, arguments[place], result))
    return found


def _owners_alone(arguments: Sequence[Any], line: _Line) -> list[Any]:
    """Return the tensor of each argument, or None where another argument reaches into it."""
    reads = [_owners(argument, line.owners) for argument in arguments]
    return [
        next(iter(read))
        if isinstance(argument, relax.Var)
        and len(read) == 1
        and sum(bool(read & other) for other in reads) == 1
        else None
        for argument, read in zip(arguments, reads, strict=True)
    ]


def _can_share(line: _Line, owner: Any, kernels: Mapping[int, Any]) -> bool:
    return (
        owner in line.sizes
        and owner not in line.leaving
        and all(index in kernels for index in line.touched_by.get(owner, ()))
    )


def _owners(expression: Any, owners: Mapping[Any, frozenset[Any]]) -> frozenset[Any]:
    """Return the variables whose memory may be read through the expression."""
    reads = relax.analysis.free_vars(expression)
    return frozenset(chain.from_iterable(owners.get(variable, ()) for variable in reads))


def _is_kernel(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar)


def _size_of(value: Any) -> int | None:
    """Return the bytes of an allocation whose shape is known."""
    if not is_call(value, _ALLOCATION):
        return None
    shape = value.args[0]
    if not isinstance(shape, relax.ShapeExpr):
        return None
    extents = [getattr(extent, "value", None) for extent in shape.values]
    if not all(isinstance(extent, int) for extent in extents):
        return None
    width = re.search(r"[0-9]+", str(value.args[1].value))
    bits = max(int(width[0]) if width else 8, 8)
    size = math.prod(int(extent or 0) for extent in extents) * bits // 8
    return max(-(-size // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)


@relax.expr_functor.mutator
class _Planner(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(
        self, module: Any, blocks: Sequence[_Block], overwritings: Sequence[_Overwriting]
    ) -> None:
        super().__init__(module)
        self._module = module
        self._block_of = {life.variables[0]: block for block in blocks for life in block.lives}
        self._overwriting_in = {overwriting.call: overwriting for overwriting in overwritings}
        self._over_others = frozenset(overwriting.result for overwriting in overwritings)
        self._storage: dict[int, Any] = {}
        self.replaced: list[Any] = []

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var in self._over_others:
            return
        overwriting = self._overwriting_in.get(binding.var)
        block = self._block_of.get(binding.var)
        if overwriting is not None:
            self._overwrite(binding, overwriting)
        elif block is not None:
            self._allocate(binding, block)
        else:
            super().visit_var_binding_(binding)

    def _allocate(self, binding: Any, block: _Block) -> None:
        if id(block) not in self._storage:
            self._storage[id(block)] = self.builder_.emit(
                relax.op.memory.alloc_storage(relax.ShapeExpr([block.size]), 0, "global", "uint8"),
                "storage",
            )
        shape, dtype = binding.value.args[:2]
        tensor = relax.op.memory.alloc_tensor(self._storage[id(block)], 0, shape, str(dtype.value))
        self.set_var_remap(binding.var, self.builder_.emit(tensor, binding.var.name))

    def _overwrite(self, binding: Any, overwriting: _Overwriting) -> None:
        call = binding.value
        self.replaced.append(call.op)
        kernel = self.builder_.add_func(
            in_place(self._module[call.op], overwriting.place), f"{call.op.name_hint}_in_place"
        )
        self.set_var_remap(overwriting.result, self.visit_expr(overwriting.argument))
        arguments = [
            self.visit_expr(argument)
            for place, argument in enumerate(call.args)
            if place != overwriting.place
        ]
        new = relax.Call(kernel, arguments, call.attrs, call.ty_args, call.span)
        self.set_var_remap(binding.var, self.builder_.emit(new, binding.var.name))


def plan_memory() -> Any:
    return tvm.transform.module_pass(_planned_best, opt_level=0, name="edgekit.PlanMemory")


def _planned_best(module: Any, context: Any) -> Any:
    del context
    tvm_plan = relax.transform.StaticPlanBlockMemory()(module)
    for variable, function in list(module.functions_items()):
        if isinstance(function, relax.Function):
            module = _planned(module, variable, function)
    own_plan = relax.transform.StaticPlanBlockMemory()(module)
    return min(own_plan, tvm_plan, key=planned_bytes)


def _planned(module: Any, variable: Any, function: Any) -> Any:
    line = _line_of(function)
    if line is None or not line.sizes:
        return module
    overwritings = _overwritings_of(line, module)
    apart, over = _blocks_of(_lives_of(line)), _blocks_of(_lives_of(line, overwritings))
    if _bytes_of(over) >= _bytes_of(apart):
        over, overwritings = apart, []
    if not over:
        return module
    planner = _Planner(module, over, overwritings)
    planner.builder_.update_func(variable, planner.visit_expr(function))
    return _without_the_unused(planner.builder_.get(), planner.replaced)


def _without_the_unused(module: Any, replaced: Sequence[Any]) -> Any:
    """Remove kernels that are called only in their in-place form."""
    called: set[Any] = set()

    def look(expression: Any) -> None:
        if isinstance(expression, ir.GlobalVar):
            called.add(expression)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, look)
    for kernel in set(replaced) - called:
        del module[kernel]
    return module
