"""The table of operators that are written in simpler ones before the exporter gets the program.

The functions are in PyTorch's own terms, so that PyTorch's rules of types hold inside them. One
that returns NotImplemented leaves the call to the exporter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

aten = torch.ops.aten
Function: TypeAlias = Callable[..., Any]

DECOMPOSITIONS: dict[Any, Function] = {}


def decomposes(*operators: Any) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for operator in operators:
            for overload in operator.overloads():
                if not overload.endswith("out"):
                    DECOMPOSITIONS[getattr(operator, overload)] = function
        return function

    return register


def in_one_type(first: Any, second: Any, *, wide: bool = False) -> tuple[Tensor, Tensor]:
    """Return both operands in the type of the result; with `wide`, half precision in float32."""
    kind = torch.result_type(first, second)
    if wide and kind in (torch.float16, torch.bfloat16):
        kind = torch.float32
    return as_type(first, kind), as_type(second, kind)


def as_type(value: Any, kind: torch.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(kind)
    return torch.full((), value, dtype=kind)


def is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
