"""Check whether a model fits before a compiler runs, and say what would help where it doesn't."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.base.errors import BuildError
from edgekit.base.sizes import format_size
from edgekit.bundle.manifest_bare_metal import BareMetal, StepEntry
from edgekit.profiles.board import Memory

_NAMED = 3


def check_budget(report: BareMetal, memory: Memory, board: str, *, is_float: bool) -> None:
    """Raise BuildError with how much memory is missing, and what takes it."""
    if report.arena_bytes > memory.ram:
        raise _too_large(
            report,
            f"the model needs {format_size(report.arena_bytes)} of memory for its arena, "
            f"{format_size(report.arena_bytes - memory.ram)} more than the "
            f"{format_size(memory.ram)} that {board} has for it",
            "alive_bytes",
            is_float,
        )
    needed = max(report.constant_bytes, report.flash_bytes)
    if memory.flash is not None and needed > memory.flash:
        raise _too_large(
            report,
            f"the model needs {format_size(needed)} of flash, "
            f"{format_size(needed - memory.flash)} more than the "
            f"{format_size(memory.flash)} that {board} has for it",
            "constant_bytes",
            is_float,
        )


def _too_large(report: BareMetal, message: str, key: str, is_float: bool) -> BuildError:
    largest = sorted(report.steps, key=lambda step: -_size(step, key))[:_NAMED]
    int8 = "int8 takes a quarter of it: edgekit quantize makes that of the model; "
    smaller = "a smaller input takes less: --shape; " if key == "alive_bytes" else ""
    return BuildError(
        message,
        hint=f"{int8 if is_float else ''}{smaller}edgekit boards lists larger boards",
        details=tuple(_details(largest, key)),
    )


def _details(steps: list[StepEntry], key: str) -> Iterator[str]:
    words = "alive while it runs" if key == "alive_bytes" else "of constants"
    for step in steps:
        layers = ", ".join(step.layers) or step.name
        yield f"{layers}: {format_size(_size(step, key))} {words}"


def _size(step: StepEntry, key: str) -> int:
    return step.alive_bytes if key == "alive_bytes" else step.constant_bytes
