"""What a manifest says of a model in C: who made each step, why, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.aot.choose import Choice
from edgekit.aot.operators import LoopNest, Operator
from edgekit.aot.tree import TreePlan
from edgekit.manifest import BareMetal, LibraryEntry, StepEntry


def report_of(plan: TreePlan, choices: Sequence[Choice]) -> BareMetal:
    """Without flash and stack, which the board's compiler decides."""
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
        )
        for step, choice, alive in zip(plan.program.steps, choices, plan.arena.alive, strict=True)
    )
    return BareMetal(
        name=plan.name,
        arena_bytes=plan.arena.bytes,
        arena_bound=plan.arena.bound,
        arena_note=plan.arena.shortfall,
        constant_bytes=sum(step.constant_bytes for step in steps),
        flash_bytes=0,
        stack_bytes=0,
        steps=steps,
        libraries=tuple(
            LibraryEntry(library.name, library.version, library.license_name)
            for library in plan.libraries
        ),
    )


def constant_bytes(choice: Choice) -> int:
    return sum(int(constant.array.nbytes) for constant in choice.kernel.constants)


def operator_word(operator: Operator) -> str:
    return "loops" if isinstance(operator, LoopNest) else type(operator).__name__
