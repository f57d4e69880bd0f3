"""Check whether a model fits before a compiler runs, and say what would help where it doesn't."""

from __future__ import annotations

from typing import Literal

from edgekit.aot.job import TreeJob
from edgekit.base.errors import BuildError
from edgekit.base.wording import exact_size
from edgekit.bundle.manifest_bare_metal import BareMetal, StepEntry

_NAMED = 3


def check_budget(report: BareMetal, job: TreeJob, *, is_float: bool) -> None:
    """Raise BuildError with how much memory is missing, and what takes it."""
    memory, board = job.memory, job.origin.board
    int8 = "int8 takes a quarter of it: edgekit quantize makes that of the model; "
    hint = f"{int8 if is_float else ''}edgekit boards lists larger boards"
    if report.arena_bytes > memory.ram:
        inputs = "smaller shapes of its inputs take" if job.shapes_chosen else "smaller models take"
        raise BuildError(
            f"the model needs {exact_size(report.arena_bytes)} of memory for its arena, "
            f"{report.arena_bytes - memory.ram:,} more than the {memory.ram:,} that {board} has "
            "for it",
            hint=f"{inputs} less; {hint}",
            details=_details(report, "alive_bytes"),
        )
    needed = max(report.constant_bytes, report.flash_bytes)
    if memory.flash is not None and needed > memory.flash:
        raise BuildError(
            f"the model needs {exact_size(needed)} of flash, {needed - memory.flash:,} more than "
            f"the {memory.flash:,} that {board} has for it",
            hint=hint,
            details=_details(report, "constant_bytes"),
        )


def _details(report: BareMetal, key: Literal["alive_bytes", "constant_bytes"]) -> tuple[str, ...]:
    words = "alive while it runs" if key == "alive_bytes" else "of constants"
    largest = sorted(report.steps, key=lambda step: -_size(step, key))[:_NAMED]
    return tuple(
        f"{', '.join(step.layers) or step.name}: {exact_size(_size(step, key))} {words}"
        for step in largest
    )


def _size(step: StepEntry, key: str) -> int:
    return step.alive_bytes if key == "alive_bytes" else step.constant_bytes
