"""The result of recognising integer operators: the rewritten module and a table of its steps."""

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
    """The model's names for each step, the most common one first."""
    declined: tuple[NotInteger, ...]
