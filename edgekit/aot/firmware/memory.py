"""Assign the parts of a firmware to the memories of a board, as a linker script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.base.errors import ProfileError
from edgekit.profiles.board import Board, MemoryRegion

_BUILD_ID_HEADER = 16
"""Bytes of the ELF note before the build id."""


@dataclass(frozen=True)
class Layout:
    boot: MemoryRegion
    """Vectors and code: the first region for code, where the core starts after a reset."""
    weights: MemoryRegion
    stack: MemoryRegion
    """Stack and variables: the first region for data."""
    arena: MemoryRegion


def layout_of(board: Board) -> Layout:
    """Place weights and arena where the profile's budgets say that there is room for them."""
    return Layout(
        boot=_first(board, "code"),
        weights=_smallest(board, "code", board.memory.flash or 0),
        stack=_first(board, "data"),
        arena=_smallest(board, "data", board.memory.ram),
    )


def linker_script(board: Board, layout: Layout, stack_bytes: int) -> str:
    regions = "\n".join(
        f"  {_name(region)} ({'rx' if region.use == 'code' else 'rw'}) : "
        f"ORIGIN = {region.start:#010x}, LENGTH = {region.size:#x}"
        for region in board.memory.regions
    )
    boot, weights = _name(layout.boot), _name(layout.weights)
    stack, arena = _name(layout.stack), _name(layout.arena)
    return f"""\
MEMORY
{{
{regions}
}}
ENTRY(reset_handler)
SECTIONS
{{
  .vectors : {{ KEEP(*(.boot)) KEEP(*(.vectors)) KEEP(*(.vectors.*)) }} > {boot}
  .note.gnu.build-id : {{ ek_build_note = .; KEEP(*(.note.gnu.build-id)) }} > {boot}
  ek_build_id = ek_build_note + {_BUILD_ID_HEADER};
  .text : {{ *(.text .text.*) . = ALIGN(4); }} > {boot}
  .rodata : {{ *(.rodata .rodata.* .srodata .srodata.*) . = ALIGN(4); }} > {weights}
  /* At the start of RAM: a stack overflow then hits no memory rather than other data. */
  .stack (NOLOAD) : {{ ek_stack_start = .; . += {stack_bytes}; ek_stack_top = .; }} > {stack}
  .data : {{
    . = ALIGN(8); ek_data_start = .; *(.data .data.*)
    PROVIDE(__global_pointer$ = . + 0x800); *(.sdata .sdata.*) . = ALIGN(8); ek_data_end = .;
  }} > {stack} AT > {boot}
  ek_data_load = LOADADDR(.data);
  /* What picolibc keeps for each thread, such as errno: the only thread has it in .bss. */
  .tbss (NOLOAD) : {{ *(.tbss .tbss.*) }} > {stack}
  .bss (NOLOAD) : {{
    . = ALIGN(16); ek_bss_start = .; ek_tls_start = .; . += SIZEOF(.tbss);
    *(.sbss .sbss.* .bss .bss.*) *(COMMON) . = ALIGN(8); ek_bss_end = .; end = .;
  }} > {stack}
  .arena (NOLOAD) : {{ . = ALIGN(16); *(.arena) . = ALIGN(16); ek_spare_start = .; }} > {arena}
  ek_spare_end = ORIGIN({arena}) + LENGTH({arena});
  /DISCARD/ : {{ *(.ARM.exidx*) *(.ARM.extab*) *(.comment) }}
}}
"""


def _name(region: MemoryRegion) -> str:
    return region.name.replace("-", "_")


def _first(board: Board, use: Literal["code", "data"]) -> MemoryRegion:
    for region in board.memory.regions:
        if region.use == use:
            return region
    raise ProfileError(
        f"the board {board.name} has no region of memory for {use}",
        hint="add one to its profile; docs/boards.md says how",
    )


def _smallest(board: Board, use: Literal["code", "data"], budget: int) -> MemoryRegion:
    """Return the smallest region that holds the budget; the largest for one over several
    regions."""
    fitting = [r for r in board.memory.regions if r.use == use and r.size >= budget]
    if fitting:
        return min(fitting, key=lambda region: region.size)
    _first(board, use)
    return max((r for r in board.memory.regions if r.use == use), key=lambda region: region.size)
