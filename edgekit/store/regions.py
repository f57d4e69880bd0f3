"""What a region of a model costs in a library and in TVM, as every part of the store speaks of it.
Knows no database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegionCost:
    """One region both ways on one kind of board: medians of one inference."""

    region: str
    """Stands for all that it computes, weights and options included."""
    board: str
    backend: str
    version: str
    """Of the library."""
    library_us: float
    tvm_us: float
    agrees: bool
    """Whether both ways gave the same numbers."""
    device: str
    measured_at: str
    """`moments.now()`."""
