"""A node of a block's graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """One binding of a dataflow block."""

    index: int
    """The node's position in the block."""
    variable: Any
    value: Any
    operator: str
    """The operator, such as `nn.conv2d`; empty for tuples, their items and constants."""
    model_node: str
    """The node's name in the model file; empty if unknown."""
    reads: tuple[int, ...]
    """The nodes whose results it reads."""
    macs: int
