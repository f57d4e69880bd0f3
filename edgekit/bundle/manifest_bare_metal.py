"""What a bundle's manifest says of a model in C: its functions, its arena, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from edgekit.bundle.manifest_reader import Reader

BufferUse = Literal["tensor", "scratch"]
BUFFER_USES: tuple[BufferUse, ...] = get_args(BufferUse)


@dataclass(frozen=True)
class StepEntry:
    """A function of a model in C: who wrote it, why, and what it takes."""

    name: str
    layers: tuple[str, ...]
    """The model's own names for what it computes."""
    operator: str
    maker: str
    note: str
    reason: str
    """Why it computes in floats, where the model is quantised."""
    others: tuple[str, ...]
    """Who could have written it and did not: `NAME: REASON`."""
    scratch_bytes: int
    constant_bytes: int
    alive_bytes: int
    """Of the arena, while it runs."""


@dataclass(frozen=True)
class BufferEntry:
    """A place in the arena, from its first step to its last."""

    name: str
    """Of what lies there; a kernel's own memory is called after its step."""
    use: BufferUse
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class LibraryEntry:
    """A third party's sources inside the C."""

    name: str
    version: str
    license: str


@dataclass(frozen=True)
class BareMetal:
    """A model as C: what its functions begin with, and what it takes of a microcontroller."""

    name: str
    arena_bytes: int
    arena_bound: int
    """The most bytes that are alive at one step: no arena can be smaller."""
    arena_note: str
    """Why the arena is larger than that, if it is."""
    constant_bytes: int
    flash_bytes: int
    """Code and constants, as the board's compiler made them."""
    stack_bytes: int
    """The most that the model's own functions need."""
    firmware_flash: int
    """What the firmware around the model takes, its C library included; 0 where there is none."""
    firmware_ram: int
    """Beside the arena: the stack that it reserves, and its variables."""
    steps: tuple[StepEntry, ...]
    buffers: tuple[BufferEntry, ...]
    libraries: tuple[LibraryEntry, ...]


def read_bare_metal(reader: Reader | None) -> BareMetal | None:
    if reader is None:
        return None
    entry = BareMetal(
        name=reader.text("name"),
        arena_bytes=reader.count("arena_bytes"),
        arena_bound=reader.count("arena_bound"),
        arena_note=reader.text("arena_note"),
        constant_bytes=reader.count("constant_bytes"),
        flash_bytes=reader.count("flash_bytes"),
        stack_bytes=reader.count("stack_bytes"),
        firmware_flash=reader.count("firmware_flash"),
        firmware_ram=reader.count("firmware_ram"),
        steps=tuple(_read_step(item) for item in reader.children("steps")),
        buffers=tuple(_read_buffer(item) for item in reader.children("buffers")),
        libraries=tuple(_read_library(item) for item in reader.children("libraries")),
    )
    reader.close()
    return entry


def _read_step(reader: Reader) -> StepEntry:
    entry = StepEntry(
        name=reader.text("name"),
        layers=reader.texts("layers"),
        operator=reader.text("operator"),
        maker=reader.text("maker"),
        note=reader.text("note"),
        reason=reader.text("reason"),
        others=reader.texts("others"),
        scratch_bytes=reader.count("scratch_bytes"),
        constant_bytes=reader.count("constant_bytes"),
        alive_bytes=reader.count("alive_bytes"),
    )
    reader.close()
    return entry


def _read_buffer(reader: Reader) -> BufferEntry:
    entry = BufferEntry(
        name=reader.text("name"),
        use=reader.word("use", BUFFER_USES),
        offset=reader.count("offset"),
        bytes=reader.count("bytes"),
        first=reader.count("first"),
        last=reader.count("last"),
    )
    reader.close()
    return entry


def _read_library(reader: Reader) -> LibraryEntry:
    entry = LibraryEntry(reader.text("name"), reader.text("version"), reader.text("license"))
    reader.close()
    return entry
