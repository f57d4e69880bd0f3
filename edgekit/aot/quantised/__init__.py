"""From dequantize, float operators, quantize to operators that compute in integers.

`recognise` is the room's door. It rewrites a module's main function so that whatever integer
kernels can compute is a call of `edgekit.step.N`, on int8 tensors with channels last; the table
says what each N is. What they cannot compute stays as it was, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

    from edgekit.aot.operators import Operator

STEP_PREFIX = "edgekit.step."


@dataclass(frozen=True)
class NotInteger:
    """A group of a quantised model that is computed in floats."""

    layers: tuple[str, ...]
    """The model's names for it."""
    operator: str
    reason: str


@dataclass(frozen=True, eq=False)
class Recognised:
    module: tvm.IRModule
    operators: Mapping[int, Operator]
    layers: Mapping[int, tuple[str, ...]]
    """The model's names for each of them, the one that it is best known by first."""
    declined: tuple[NotInteger, ...]


def recognise(module: tvm.IRModule) -> Recognised:
    """Apply to a module as it was imported, before constants are folded."""
    from edgekit.aot.quantised.rewrite import rewrite

    return rewrite(module)
