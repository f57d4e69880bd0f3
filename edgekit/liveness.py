"""The memory that a model's activations need at least: the most bytes alive at the same time.

Looked at after fusion, where each binding is a kernel that reads its arguments and writes its
result into memory of its own; a reshape shares its argument's. Inputs count until their last
use, outputs to the end. Weights and a kernel's own scratch memory don't count, and no plan that
keeps this order of kernels can do with less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax

from edgekit.macs import shape_of_type


def peak_activation_bytes(module: Any) -> int:
    """Of a Relax module after fusion whose shapes are known."""
    return _Liveness(module).of_function(module["main"], with_inputs=True)


class _Liveness:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._known: dict[str, int] = {}

    def of_function(self, function: Any, *, with_inputs: bool) -> int:
        return self._of_body(function.body, function.params if with_inputs else ())

    def _of_body(self, body: Any, inputs: Iterable[Any]) -> int:
        bindings = [binding for block in body.blocks for binding in block.bindings]
        owners: dict[Any, frozenset[Any]] = {}
        born = dict.fromkeys(inputs, 0)
        inside = [0] * (len(bindings) + 1)
        last_read: dict[Any, int] = {}
        for variable in born:
            owners[variable] = frozenset([variable])
        for index, binding in enumerate(bindings):
            variable, value = binding.var, binding.value
            reads: frozenset[Any] = frozenset().union(
                *(owners.get(read, frozenset()) for read in _reads(value))
            )
            last_read.update(dict.fromkeys(reads, index))
            if self._shares_memory(value):
                owners[variable] = reads
            else:
                owners[variable] = frozenset([variable])
                born[variable] = index
                inside[index] = self._inside(value)
        for read in _reads(body.body):
            last_read.update(dict.fromkeys(owners.get(read, frozenset()), len(bindings)))
        change = [0] * (len(bindings) + 2)
        for variable, index in born.items():
            size = _bytes_of(variable.ty)
            change[index] += size
            change[last_read.get(variable, index) + 1] -= size
        peak = alive = 0
        for index, extra in enumerate(inside):
            alive += change[index]
            peak = max(peak, alive + extra)
        return peak

    def _shares_memory(self, value: Any) -> bool:
        if isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem)):
            return True
        if not isinstance(value, relax.Call) or str(getattr(value.op, "name", "")) not in (
            "relax.call_tir",
            "relax.reshape",
        ):
            return False
        if value.op.name == "relax.reshape":
            return True
        kernel = self._module[value.args[0]]
        return bool(relax.analysis.has_reshape_pattern(kernel))

    def _inside(self, value: Any) -> int:
        """What a branch or a called function needs beyond its arguments and result."""
        if isinstance(value, relax.If):
            return max(self._of_body(branch, ()) for branch in _branches(value))
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            name = value.op.name_hint
            if name not in self._known:
                self._known[name] = 0  # a loop is a function that calls itself
                function = self._module[value.op]
                self._known[name] = self.of_function(function, with_inputs=False)
            return self._known[name]
        return 0


def _branches(value: Any) -> tuple[Any, ...]:
    return value.true_branch, value.false_branch


def _reads(expression: Any) -> list[Any]:
    return list(relax.analysis.free_vars(expression))


def _bytes_of(kind: Any) -> int:
    if isinstance(kind, relax.TupleType):
        return sum(_bytes_of(field) for field in kind.fields)
    if isinstance(kind, relax.TensorType):
        width = re.search(r"[0-9]+", str(kind.dtype))
        bits = int(width[0]) if width else 8  # bool
        return -(-math.prod(shape_of_type(kind)) * bits // 8)
    return 0
