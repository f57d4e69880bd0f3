"""A node of a block's graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """One binding of a dataflow block."""

    index: int
    """Its place in the block."""
    variable: Any
    value: Any
    operator: str
    """`nn.conv2d`; empty for a tuple, an item of one, and a constant."""
    model_node: str
    """Its name in the model file; empty where it is not known."""
    reads: tuple[int, ...]
    """The nodes whose results it needs."""
    macs: int
