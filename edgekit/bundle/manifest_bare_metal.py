"""The part of a manifest about a model in C: its functions, its arena, its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from edgekit.bundle.manifest_reader import Reader

BufferUse = Literal["tensor", "scratch"]
BUFFER_USES: tuple[BufferUse, ...] = get_args(BufferUse)


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
    scratch_bytes: int
    constant_bytes: int
    alive_bytes: int
    """Bytes of the arena in use while it runs."""


@dataclass(frozen=True)
class BufferEntry:
    """A place in the arena, from its first step to its last."""

    name: str
    """The name of the content. A kernel's own memory is named after its step."""
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
    """A model as C: the prefix of its functions, and its needs on a microcontroller."""

    name: str
    arena_bytes: int
    arena_bound: int
    """The most bytes in use at one step. No arena can be smaller."""
    arena_note: str
    """The reason why the arena is larger than that, if it is."""
    constant_bytes: int
    flash_bytes: int
    """Bytes of code and constants, as compiled for the board."""
    stack_bytes: int
    """The most bytes of stack that the model's own functions need."""
    firmware_flash: int
    """Bytes of the firmware around the model with its C library; 0 without firmware."""
    firmware_ram: int
    """Bytes of the firmware's stack and variables, without the arena."""
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
