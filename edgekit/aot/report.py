"""The report on a model in C in its manifest: who made each step, why, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.aot.arena import places, reads_of
from edgekit.aot.choose import Choice
from edgekit.aot.operators import LoopNest, Operator
from edgekit.aot.tree import TreePlan
from edgekit.bundle.manifest_bare_metal import BareMetal, BufferEntry, LibraryEntry, StepEntry


def report_of(plan: TreePlan, choices: Sequence[Choice]) -> BareMetal:
    """Return the report without flash, stack and firmware, which the board's compiler decides."""
    steps = tuple(
        StepEntry(
            name=step.name,
            layers=tuple(layer for layer in step.layers if layer),
            operator=operator_word(step.operator),
            maker=choice.kernel.maker,
            note=choice.kernel.note,
            reason=step.reason,
            others=tuple(f"{name}: {reason}" for name, reason in choice.others),
            scratch_bytes=choice.kernel.scratch,
            constant_bytes=constant_bytes(choice),
            alive_bytes=alive,
            reads=reads,
        )
        for step, choice, alive, reads in zip(
            plan.program.steps, choices, plan.arena.alive, reads_of(plan.program), strict=True
        )
    )
    scratch = [kernel.scratch for kernel in plan.kernels]
    return BareMetal(
        name=plan.name,
        arena_bytes=plan.arena.bytes,
        arena_bound=plan.arena.bound,
        arena_note=plan.arena.shortfall,
        constant_bytes=sum(step.constant_bytes for step in steps),
        flash_bytes=0,
        stack_bytes=0,
        firmware_flash=0,
        firmware_ram=0,
        steps=steps,
        buffers=tuple(
            BufferEntry(**vars(one)) for one in places(plan.program, plan.arena, scratch)
        ),
        libraries=tuple(
            LibraryEntry(library.name, library.version, library.license_name)
            for library in plan.libraries
        ),
    )


def constant_bytes(choice: Choice) -> int:
    return sum(int(constant.array.nbytes) for constant in choice.kernel.constants)


def operator_word(operator: Operator) -> str:
    return "loops" if isinstance(operator, LoopNest) else type(operator).__name__
