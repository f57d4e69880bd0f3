"""The part of a manifest about the steps of a library, which a profile measures one by one."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.base.decode import Count
from edgekit.bundle.manifest_bare_metal import BufferEntry
from edgekit.compiler.steps import StepKind

NO_KERNELS = frozenset({"copy", "indices"})
"""The kinds of steps that compute no layer."""


@dataclass(frozen=True)
class LibraryStep:
    name: str
    """The name that a profile gives it."""
    kind: StepKind
    layers: tuple[str, ...]
    """The model's own names of the layers that it computes, those inside a loop included."""
    owner: str
    """The backend whose library runs it; empty for edgekit's own kernels."""
    bytes: Count | None
    """The bytes of all tensors and weights that it reads and writes; None if unknown."""
    operations: Count | None = None
    """Its additions and multiplications; None if unknown."""
    reads: tuple[Count, ...] | None = None
    """The steps whose results it reads, by their places; None if unknown."""
    launches: Count = 0
    """Kernels that a GPU starts for it."""


@dataclass(frozen=True)
class Arena:
    """The memory of a program, which is planned when it is built."""

    bytes: Count
    bound: Count
    """The most bytes in use at one step. No arena can be smaller."""
    buffers: tuple[BufferEntry, ...]
