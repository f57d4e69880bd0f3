"""Which tensors share memory: those that are never alive together.

TVM's own plan takes tensors in the order in which they come, and needs up to twice as much as is
alive at any time. Here the largest come first, so that every later one fits into a block that is
there already; where another plan is better, it is taken. Tensors begin where their block begins:
kernels take no others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import tvm
from tvm import ir, relax

_ALLOCATION = "relax.builtin.alloc_tensor"
_ALIGNMENT = 64
_STORAGE = frozenset({"relax.memory.alloc_storage", "relax.vm.alloc_storage"})
"""Before and after the VM's own form."""


@dataclass(frozen=True)
class _Life:
    variable: Any
    size: int
    born: int
    dies: int

    def meets(self, other: _Life) -> bool:
        return self.born <= other.dies and other.born <= self.dies


@dataclass
class _Block:
    size: int
    lives: list[_Life] = field(default_factory=list)


def planned_bytes(module: Any) -> int:
    """Of all blocks that a planned module allocates. Outputs are the caller's: they don't count,
    and neither does what is as large as the data makes it, or has no element."""
    sizes: list[int] = []

    for function in module.functions.values():
        if not isinstance(function, relax.Function):
            continue
        values = relax.analysis.get_var2val(function)

        def look(expression: Any, values: Any = values) -> None:
            if isinstance(expression, relax.Call) and _name(expression) in _STORAGE:
                shape = expression.args[0]
                while isinstance(shape, relax.Var):  # a shape that stands in several places
                    shape = values[shape]
                if isinstance(shape, relax.ShapeExpr):
                    sizes.append(int(shape.values[0]))

        relax.analysis.post_order_visit(function, look)
    return sum(sizes)


def _blocks_of(function: Any) -> list[_Block]:
    """The better of two plans: which is depends on the network."""
    lives = _lives_of(function)
    plans = (
        _placed(sorted(lives, key=lambda life: (-life.size, life.born))),
        _placed(sorted(lives, key=lambda life: life.born)),
    )
    return min(plans, key=lambda blocks: sum(block.size for block in blocks))


def _placed(lives: Sequence[_Life]) -> list[_Block]:
    """Each in the block that is nearest to its size, and grows where it is smaller."""
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


def _lives_of(function: Any) -> list[_Life]:
    """Of the tensors that stay inside a function that is one straight line."""
    if not isinstance(function.body, relax.SeqExpr):
        return []
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    if any(isinstance(getattr(binding, "value", None), relax.If) for binding in bindings):
        return []
    owners: dict[Any, frozenset[Any]] = {}
    sizes: dict[Any, int] = {}
    born: dict[Any, int] = {}
    dies: dict[Any, int] = {}
    for index, binding in enumerate(bindings):
        value = binding.value
        reads = _owners(value, owners)
        dies.update(dict.fromkeys(reads, index))
        size = _size_of(value)
        if size is not None:
            owners[binding.var] = frozenset([binding.var])
            sizes[binding.var], born[binding.var], dies[binding.var] = size, index, index
        elif not _is_kernel(value):
            owners[binding.var] = reads
    leaving = _owners(function.body.body, owners)
    return [
        _Life(variable, size, born[variable], dies[variable])
        for variable, size in sizes.items()
        if variable not in leaving
    ]


def _owners(expression: Any, owners: Mapping[Any, frozenset[Any]]) -> frozenset[Any]:
    """Whose memory may be read through it."""
    reads = relax.analysis.free_vars(expression)
    return frozenset(chain.from_iterable(owners.get(variable, ()) for variable in reads))


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", ""))


def _is_kernel(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar)


def _size_of(value: Any) -> int | None:
    """Of an allocation whose shape is known."""
    if not isinstance(value, relax.Call) or _name(value) != _ALLOCATION:
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
    def __init__(self, module: Any, blocks: list[_Block]) -> None:
        super().__init__(module)
        self._block_of = {life.variable: block for block in blocks for life in block.lives}
        self._storage: dict[int, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        block = self._block_of.get(binding.var)
        if block is None:
            super().visit_var_binding_(binding)
            return
        if id(block) not in self._storage:
            self._storage[id(block)] = self.builder_.emit(
                relax.op.memory.alloc_storage(relax.ShapeExpr([block.size]), 0, "global", "uint8"),
                "storage",
            )
        shape, dtype = binding.value.args[:2]
        tensor = relax.op.memory.alloc_tensor(self._storage[id(block)], 0, shape, str(dtype.value))
        self.set_var_remap(binding.var, self.builder_.emit(tensor, binding.var.name))


@tvm.transform.module_pass(opt_level=0, name="edgekit.PlanMemory")
class PlanMemory:
    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        theirs = relax.transform.StaticPlanBlockMemory()(module)
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                blocks = _blocks_of(function)
                if blocks:
                    planner = _Planner(module, blocks)
                    module.update_func(variable, planner.visit_expr(function))
        ours = relax.transform.StaticPlanBlockMemory()(module)
        return min(ours, theirs, key=planned_bytes)
