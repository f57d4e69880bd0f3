"""Where a model's bytes go: the arena over time, flash by layer, and which boards have the room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgekit.base.wording import size
from edgekit.bundle.manifest_bare_metal import BareMetal, BufferEntry
from edgekit.profiles.board import Board, parse_board
from edgekit.profiles.reader import list_profiles


@dataclass(frozen=True)
class FlashUse:
    """A layer's constants, or code and data outside of all layers."""

    what: str
    layers: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class BoardFit:
    """A board's budget and what the model needs of it."""

    board: str
    cpu: str
    ram_needed: int
    ram: int
    flash_needed: int
    flash: int
    fits: bool
    verdict: str
    """That the model fits, or how much memory is missing."""


@dataclass(frozen=True)
class MemoryMap:
    name: str
    arena_bytes: int
    arena_bound: int
    """The most bytes that are alive at one step."""
    beside_arena: int
    """RAM for the stack and the firmware's variables."""
    steps: tuple[str, ...]
    buffers: tuple[BufferEntry, ...]
    flash: tuple[FlashUse, ...]
    boards: tuple[BoardFit, ...]


def bare_metal_boards(folder: Path | None = None) -> tuple[Board, ...]:
    """Return the boards with a readable profile; `edgekit boards` reports the others' errors."""
    entries = list_profiles("boards", partial(parse_board, folder=folder), folder)
    boards = [entry.profile for entry in entries if entry.profile is not None]
    return tuple(board for board in boards if not board.has_os)


def memory_map(c: BareMetal, boards: Iterable[Board]) -> MemoryMap:
    """Build the map. Other boards are judged by the figures of this compilation: kernels for
    another CPU differ by a little."""
    beside_arena = max(c.stack_bytes, c.firmware_ram)
    ram = c.arena_bytes + beside_arena
    flash = c.flash_bytes + c.firmware_flash
    return MemoryMap(
        name=c.name,
        arena_bytes=c.arena_bytes,
        arena_bound=c.arena_bound,
        beside_arena=beside_arena,
        steps=tuple(step.name for step in c.steps),
        buffers=c.buffers,
        flash=tuple(_flash(c)),
        boards=tuple(_fit(board, ram, flash) for board in boards),
    )


def _fit(board: Board, ram: int, flash: int) -> BoardFit:
    budget = board.memory.flash or 0
    over = (("RAM", ram - board.memory.ram), ("flash", flash - budget))
    missing = [f"{size(count)} of {what} missing" for what, count in over if count > 0]
    return BoardFit(
        board=board.name,
        cpu=board.cpu.name,
        ram_needed=ram,
        ram=board.memory.ram,
        flash_needed=flash,
        flash=budget,
        fits=not missing,
        verdict=", ".join(missing) or "fits",
    )


def _flash(c: BareMetal) -> Iterator[FlashUse]:
    for step in c.steps:
        if step.constant_bytes:
            yield FlashUse(step.name, step.layers, step.constant_bytes)
    yield FlashUse("code", (), max(c.flash_bytes - c.constant_bytes, 0))
    if c.firmware_flash:
        yield FlashUse("firmware", (), c.firmware_flash)
