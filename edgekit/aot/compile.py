"""From an imported model to everything that its C tree says: the part that needs TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.aot.arena import plan_arena
from edgekit.aot.choose import Choice, choose_kernels
from edgekit.aot.kernel import Generator
from edgekit.aot.lower import lower
from edgekit.aot.program import Program
from edgekit.aot.read import read_program
from edgekit.aot.tree import Library, Origin, TreePlan
from edgekit.cpu import Cpu
from edgekit.model import Model

Dump = Callable[[str, Any], None]


@dataclass(frozen=True)
class Compiled:
    plan: TreePlan
    choices: tuple[Choice, ...]


def compile_tree(
    model: Model,
    name: str,
    cpu: Cpu,
    origin: Origin,
    generators: Sequence[Generator],
    dump: Dump = lambda name, module: None,
) -> Compiled:
    """`name` is a C identifier: what all of the tree's names begin with."""
    program = read_program(name, model, lower(model.module, dump))
    choices = choose_kernels(program, cpu, generators)
    return Compiled(planned(program, choices, origin), choices)


def planned(
    program: Program,
    choices: Sequence[Choice],
    origin: Origin,
    libraries: tuple[Library, ...] = (),
) -> TreePlan:
    kernels = tuple(choice.kernel for choice in choices)
    return TreePlan(origin, program, kernels, plan_arena(program, kernels), libraries)
