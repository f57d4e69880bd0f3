"""The part of a manifest about a model in C: its functions, its arena, its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.base.decode import Count

BufferUse = Literal["tensor", "scratch"]


@dataclass(frozen=True)
class StepEntry:
    """A function of a model in C: its generator, the reason, and its size."""

    name: str
    layers: tuple[str, ...]
    """The model's own names of the layers that it computes."""
    operator: str
    maker: str
    note: str
    reason: str
    """The reason why it computes in floats, if the model is quantised."""
    others: tuple[str, ...]
    """The other possible generators, as `NAME: REASON`."""
    scratch_bytes: Count
    constant_bytes: Count
    alive_bytes: Count
    """Bytes of the arena in use while it runs."""
    reads: tuple[Count, ...] | None = None
    """The steps whose results it reads, by their places; None in bundles of earlier versions."""


@dataclass(frozen=True)
class BufferEntry:
    """A place in the arena, from its first step to its last."""

    name: str
    """The name of the content. A kernel's own memory is named after its step."""
    use: BufferUse
    offset: Count
    bytes: Count
    first: Count
    last: Count


@dataclass(frozen=True)
class LibraryEntry:
    """A third party's sources inside the C."""

    name: str
    version: str
    license: str


@dataclass(frozen=True)
class BareMetal:
    """A model as C: the prefix of its functions, and its needs on a microcontroller."""

    name: str
    arena_bytes: Count
    arena_bound: Count
    """The most bytes in use at one step. No arena can be smaller."""
    arena_note: str
    """The reason why the arena is larger than that, if it is."""
    constant_bytes: Count
    flash_bytes: Count
    """Bytes of code and constants, as compiled for the board."""
    stack_bytes: Count
    """The most bytes of stack that the model's own functions need."""
    firmware_flash: Count
    """Bytes of the firmware around the model with its C library; 0 without firmware."""
    firmware_ram: Count
    """Bytes of the firmware's stack and variables, without the arena."""
    steps: tuple[StepEntry, ...]
    buffers: tuple[BufferEntry, ...]
    libraries: tuple[LibraryEntry, ...]
