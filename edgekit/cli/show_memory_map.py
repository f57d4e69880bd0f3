"""Prints a memory map as tables: the arena, the flash, and the boards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.wording import exact_size, size
from edgekit.cli.console import Console

if TYPE_CHECKING:
    from edgekit.aot.memory_map import MemoryMap


def show_memory_map(console: Console, memory: MemoryMap, drawing: Path) -> None:
    console.print()
    console.heading(
        f"arena: {exact_size(memory.arena_bytes)}, {memory.arena_bound:,} alive at one step"
    )
    console.table(
        ("what", "use", "offset", "bytes", "from", "to"),
        [
            (
                b.name,
                b.use,
                f"{b.offset:,}",
                f"{b.bytes:,}",
                _step(memory, b.first),
                _step(memory, b.last),
            )
            for b in memory.buffers
        ],
        right=("offset", "bytes"),
        spare=("use", "offset"),
    )
    console.print()
    console.heading(f"flash: {exact_size(sum(use.bytes for use in memory.flash))}")
    console.table(
        ("what", "bytes", "layers"),
        [
            (use.what, f"{use.bytes:,}", ", ".join(layer.partition(";")[0] for layer in use.layers))
            for use in memory.flash
        ],
        right=("bytes",),
    )
    console.print()
    console.heading(
        f"RAM: {exact_size(memory.arena_bytes + memory.beside_arena)}, "
        f"{memory.beside_arena:,} of them outside the arena, for the stack and the firmware's "
        "variables"
    )
    console.print()
    console.heading("boards")
    console.table(
        ("board", "CPU", "RAM needed", "RAM", "flash needed", "flash", "verdict"),
        [
            (
                f.board,
                f.cpu,
                size(f.ram_needed),
                size(f.ram),
                size(f.flash_needed),
                size(f.flash),
                f.verdict,
            )
            for f in memory.boards
        ],
        right=("RAM needed", "RAM", "flash needed", "flash"),
        spare=("CPU", "RAM", "flash"),
    )
    console.print()
    console.fields([("drawn in", str(drawing))])


def _step(memory: MemoryMap, number: int) -> str:
    """Return a step's number and name; the number may be out of range in an untrusted manifest."""
    name = memory.steps[number] if number < len(memory.steps) else ""
    return f"{number} {name}".rstrip()
