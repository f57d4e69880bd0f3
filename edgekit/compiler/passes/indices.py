"""Checked indices: how an importer or a pass requests a check, and how constants are checked.

A check is a call between an index tensor and the operator that reads or writes at it. It returns
the same indices, counted from the start and inside the tensor. Where one is outside, a library
raises an error (lower_index_checks.py), and a program in C clamps it and returns a status (aot/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.errors import ModelError
from edgekit.compiler.loops import control_of
from edgekit.cross.library_code import OUTSIDE

DIVIDES = "edgekit.divides"
"""The attribute of a loop nest that divides whole numbers by its second operand."""
_DIVISORS = 1, 100
_PREFIX = "edgekit.index:"


@dataclass(frozen=True)
class IndexRule:
    """The values that an index tensor may have."""

    tensor: str
    """The index tensor's name in the model, for the error; empty where only the graph tells."""
    extents: tuple[int, ...]
    """One extent for all indices, or one for each entry of their last axis."""
    counts_from_end: bool = False
    """Whether -1 is the last element."""

    @property
    def symbol(self) -> str:
        return _PREFIX + json.dumps([self.tensor, self.extents, self.counts_from_end])

    def lowest(self, extent: int) -> int:
        return -extent if self.counts_from_end else 0

    def outside(self, value: int, extent: int) -> str:
        """Return the error for a value outside, as in the C of cross/library_code.py."""
        return (
            f"'{self.tensor}' holds the index {value}, "
            f"{OUTSIDE} {self.lowest(extent)} to {extent - 1}"
        )


def checked(indices: Any, rule: IndexRule) -> Any:
    """Return an expression for the indices checked by the rule, for the caller to emit."""
    kind = indices.ty
    is_narrow = str(kind.dtype) == "int32" and max(rule.extents) < 1 << 31
    dtype = "int32" if is_narrow else "int64"
    return relax.call_dps_packed(
        rule.symbol, relax.Tuple([indices]), out_ty=relax.TensorType(kind.shape, dtype)
    )


def rule_of(call: Any) -> IndexRule | None:
    """Return the rule of a check; None for any other expression."""
    operator = getattr(call, "op", None)
    if not isinstance(operator, tvm.ir.Op) or operator.name != "relax.call_dps_packed":
        return None
    return read_rule(str(call.args[0].global_symbol))


def read_rule(symbol: str) -> IndexRule | None:
    """Return the rule that a symbol encodes; None for any other symbol."""
    if not symbol.startswith(_PREFIX):
        return None
    tensor, extents, counts_from_end = json.loads(symbol.removeprefix(_PREFIX))
    return IndexRule(tensor, tuple(extents), counts_from_end)


def counted_from_start(values: Array, rule: IndexRule) -> Array:
    """Count constant indices from the start; raise a ModelError that names the first one
    outside."""
    whole = values.astype(np.int64)
    extents = np.broadcast_to(np.array(rule.extents, np.int64), whole.shape or (1,))
    extents = extents.reshape(whole.shape)
    lowest = -extents if rule.counts_from_end else np.zeros_like(extents)
    wrong = (whole < lowest) | (whole >= extents)
    if wrong.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
        value, extent = (int(np.atleast_1d(array)[place]) for array in (whole, extents))
        raise ModelError(
            rule.outside(value, extent),
            hint="the model is broken: export it again with indices that its tensors have",
        )
    return np.where(whole < 0, whole + extents, whole)


def index_ranges(module: Any, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the range of each input of `main` that is an index or divides whole numbers.

    `names` are those of the inputs. Where several operators check an input, the range is what all
    of them allow.
    """
    return _ranges_in(module, "main", names)


def _ranges_in(module: Any, name: str, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the ranges of a function's parameters. Those that have no name in the model have an
    empty one."""
    function = module[name]
    inputs = {v: word for v, word in zip(function.params, names, strict=True) if word}
    values = relax.analysis.get_var2val(function)
    ranges: dict[str, tuple[int, int]] = {}

    def allow(name: str, lowest: int, highest: int) -> None:
        low, high = ranges.get(name, (lowest, highest))
        ranges[name] = max(low, lowest), min(high, highest)

    def visit(expression: Any) -> None:
        rule = rule_of(expression)
        if rule is not None and (name := inputs.get(expression.args[1].fields[0])) is not None:
            extent = min(rule.extents)
            allow(name, rule.lowest(extent), extent - 1)
        control = control_of(expression)
        if control is not None:
            passed = expression.args[1].fields[control.own :]
            given = [inputs.get(_source(one, values), "") for one in passed]
            for body in control.bodies:
                for word, (low, high) in _ranges_in(module, body, given).items():
                    allow(word, low, high)
        divisor = _source(_divisor(expression, module), values)
        if (name := inputs.get(divisor)) is not None:
            allow(name, *_DIVISORS)

    relax.analysis.post_order_visit(function.body, visit)
    return {name: (low, high) for name, (low, high) in ranges.items() if low <= high}


def is_operator(expression: Any, name: str) -> bool:
    operator = getattr(expression, "op", None)
    return isinstance(operator, tvm.ir.Op) and operator.name == name


def _source(variable: Any, values: Mapping[Any, Any]) -> Any:
    """Return the variable that `variable` is a copy of, in any type."""
    value: Any = values.get(variable)
    while isinstance(value, relax.Var) or is_operator(value, "relax.astype"):
        variable = value if isinstance(value, relax.Var) else value.args[0]
        value = values.get(variable)
    return variable


def _divisor(expression: Any, module: Any) -> Any:
    """Return the operand that a call divides whole numbers by; None for any other call."""
    if not is_operator(expression, "relax.call_tir"):
        return None
    attributes = module[expression.args[0]].attrs or {}
    return expression.args[1].fields[1] if DIVIDES in attributes else None
