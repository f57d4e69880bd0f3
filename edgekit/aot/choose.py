"""Which generator makes each step's C: the cheapest offer, and why the others did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.aot.kernel import Declined, Generator, Kernel
from edgekit.aot.program import Program, Step
from edgekit.cpu import Cpu
from edgekit.errors import UnsupportedModelError


@dataclass(frozen=True)
class Choice:
    """Who makes one step, and what everybody else said."""

    kernel: Kernel
    others: tuple[tuple[str, str], ...]
    """Of each generator that was not taken: its name and the reason."""


def choose_kernels(
    program: Program, cpu: Cpu, generators: Sequence[Generator]
) -> tuple[Choice, ...]:
    return tuple(_choose(step, cpu, generators) for step in program.steps)


def _choose(step: Step, cpu: Cpu, generators: Sequence[Generator]) -> Choice:
    offers: list[tuple[str, Kernel]] = []
    others: list[tuple[str, str]] = []
    for generator in generators:
        offer = generator.offer(step, cpu)
        if isinstance(offer, Declined):
            others.append((generator.name, offer.reason))
        else:
            offers.append((generator.name, offer))
    if not offers:
        layer = step.layers[0] if step.layers else step.name
        reasons = "; ".join(reason for _, reason in others) or "nobody was asked"
        raise UnsupportedModelError(
            f"the layer {layer} has no C: {reasons}",
            hint="docs/bare-metal.md says what a model for a microcontroller may use",
        )
    # The first of the cheapest: where nobody knows a cost, the order of generators decides.
    kernel = min((offer for _, offer in offers), key=_cost)
    for other, offer in offers:
        if offer is not kernel:
            others.append((other, f"dearer: {_estimate(offer)} against {_estimate(kernel)}"))
    return Choice(kernel, tuple(others))


def _cost(kernel: Kernel) -> float:
    return float("inf") if kernel.instructions is None else kernel.instructions


def _estimate(kernel: Kernel) -> str:
    known = kernel.instructions
    return "a cost that nobody knows" if known is None else f"about {known} instructions"
