"""Choose the generator of each step's C: the way that measured best, or else the cheapest offer,
with the reason why the others were not taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from edgekit.aot.kernel import Declined, Generator, Kernel
from edgekit.aot.operators import CONTROL, Branch, Loop
from edgekit.aot.program import Program, Step
from edgekit.aot.repeat import controlled
from edgekit.aot.ways import OWN, StepWays, Way, step_key
from edgekit.base.errors import UnsupportedModelError
from edgekit.profiles.cpu import Cpu

_DEARER = "dearer"


@dataclass(frozen=True)
class Choice:
    """The generator of one step, and the replies of all others."""

    kernel: Kernel
    others: tuple[tuple[str, str], ...]
    """The name of each generator that was not taken, and the reason."""
    way: Way


def choose_kernels(
    program: Program,
    cpu: Cpu,
    generators: Sequence[Generator],
    wanted: Mapping[str, Way] = MappingProxyType({}),
) -> tuple[Choice, ...]:
    """Choose for every step; `wanted` are the ways that measured best, by the key of the step."""
    return tuple(
        _controlled(step, step.operator, cpu, generators)
        if isinstance(step.operator, CONTROL)
        else _wanted(step, cpu, generators, wanted) or _choose(step, cpu, generators)
        for step in program.steps
    )


def _controlled(
    step: Step, what: Loop | Branch, cpu: Cpu, generators: Sequence[Generator]
) -> Choice:
    kernels = [
        [choice.kernel for choice in choose_kernels(body, cpu, generators)] for body in what.bodies
    ]
    kernel = controlled(step, what, kernels)
    return Choice(kernel, (), Way(kernel.maker))


def ways_of(
    program: Program, cpu: Cpu, generators: Sequence[Generator], choices: Sequence[Choice]
) -> tuple[StepWays, ...]:
    """Return all ways to make every step that some generator offers."""
    found = []
    for step, choice in zip(program.steps, choices, strict=True):
        if isinstance(step.operator, CONTROL):
            continue
        refused = {name for name, reason in choice.others if not reason.startswith(_DEARER)}
        ways = [
            Way(generator.name, name)
            for generator in generators
            if generator.name not in refused
            for name in (OWN, *generator.ways(step, cpu))
        ]
        others = tuple(way for way in ways if way != choice.way)
        words = f"{type(step.operator).__name__} {step.name}"
        found.append(StepWays(step.name, step_key(step), words, choice.way, others))
    return tuple(found)


def _wanted(
    step: Step, cpu: Cpu, generators: Sequence[Generator], wanted: Mapping[str, Way]
) -> Choice | None:
    """Return the measured choice; None without a measurement, or if its way is no longer
    offered."""
    way = wanted.get(step_key(step)) if wanted else None
    maker = next((g for g in generators if way is not None and g.name == way.maker), None)
    if way is None or maker is None:
        return None
    offer = maker.offer(step, cpu, way.name)
    if isinstance(offer, Declined):
        return None
    measured = "measured to be best" + (f": {way.name}" if way.name else "")
    note = f"{offer.note}, {measured}" if offer.note else measured
    others = tuple((g.name, _DEARER) for g in generators if g is not maker)
    return Choice(replace(offer, note=note), others, way)


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
        reasons = "; ".join(reason for _, reason in others) or "no other generator was asked"
        raise UnsupportedModelError(
            f"the layer {layer} has no C: {reasons}",
            hint="docs/bare-metal.md says what a model for a microcontroller may use",
        )
    # The first of the cheapest: without known costs, the order of generators decides.
    maker, kernel = min(offers, key=lambda named: _cost(named[1]))
    for other, offer in offers:
        if offer is not kernel:
            others.append((other, f"{_DEARER}: {_estimate(offer)} against {_estimate(kernel)}"))
    return Choice(kernel, tuple(others), Way(maker))


def _cost(kernel: Kernel) -> float:
    return float("inf") if kernel.instructions is None else kernel.instructions


def _estimate(kernel: Kernel) -> str:
    count = kernel.instructions
    return "an unknown cost" if count is None else f"about {count} instructions"
