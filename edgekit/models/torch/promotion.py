"""The types in which PyTorch computes an operator, and the conversion of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes
from tvm import relax

op = relax.op

EXACT, WIDE, FLOAT, BOOL, POWER = (
    KIND.NO_OPMATH,
    KIND.DEFAULT,
    KIND.INT_TO_FLOAT,
    KIND.ALWAYS_BOOL,
    KIND.BOOL_TO_LONG,
)
"""The kinds of promotion. EXACT: one operation that rounds once. WIDE: several operations, with
half precision in float32. FLOAT: whole numbers become floats, and half precision is computed in
float32."""


@dataclass(frozen=True)
class Operands:
    """The operands of an operator."""

    block: Any
    values: tuple[Any, ...]
    """The tensors and numbers, as expressions of one type."""
    given: tuple[Any, ...]
    """The node's own arguments, for operators that need the numbers of the program."""
    options: Mapping[str, Any]

    @property
    def dtype(self) -> str:
        return str(self.values[0].ty.dtype)

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    def number(self, value: float) -> Any:
        return relax.const(value, self.dtype)


Compute = Callable[[Operands], Any]


@dataclass(frozen=True)
class Elementwise:
    """An elementwise operator."""

    kind: Any
    operands: int
    compute: Compute


def computed(operator: Elementwise, block: Any, node: Any, environment: Mapping[Any, Any]) -> Any:
    """Convert a node with this operator."""
    given = tuple(node.args[: operator.operands])
    facts = [arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in given]
    kind, _ = elementwise_dtypes(
        *(fact for fact in facts if fact is not None), type_promotion_kind=operator.kind
    )
    dtype = dtype_name(kind)
    values = tuple(_as_expression(block, arg, environment, dtype) for arg in given)
    result = block.emit(operator.compute(Operands(block, values, given, options_of(node))))
    return block.emit(as_type(result, dtype_name(node.meta["val"].dtype)))


def options_of(node: Any) -> dict[str, Any]:
    """Return the arguments that the program gives a node, by name."""
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def operator_name(node: Any) -> str:
    """Return the operator's name without its overload."""
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def as_type(value: Any, dtype: str) -> Any:
    """Convert the value to another type; anything but zero is True, NaN included."""
    source = str(value.ty.dtype)
    if source == dtype:
        return value
    if dtype == "bool":
        return op.not_equal(value, relax.const(0, source))
    if source == "bool":
        middle = "float32" if dtype.startswith(("float", "bfloat")) else "int32"
        value, source = op.astype(value, middle), middle
    return value if source == dtype else op.astype(value, dtype)


def _as_expression(block: Any, given: Any, environment: Mapping[Any, Any], dtype: str) -> Any:
    if given is None:
        return None
    value = environment[given] if isinstance(given, torch.fx.Node) else given
    if not isinstance(value, relax.Expr):
        return relax.const(np.asarray(value).astype(dtype), dtype)  # numbers wrap around, too
    return block.emit(as_type(value, dtype))
