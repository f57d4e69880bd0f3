"""What passes between a search and the process that compiles for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.backends.plan import OffloadPlan
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import Choice
from edgekit.cross.link import Objects
from edgekit.models.model import ModelSource
from edgekit.profiles.cpu import Target


@dataclass(frozen=True)
class Order:
    """Asks for the kernels of a model; the process keeps them."""

    source: ModelSource
    target: Target
    offload: OffloadPlan


@dataclass(frozen=True)
class Kernel:
    """What can be searched for."""

    key: str
    words: str
    work: int
    """Of all its calls in one inference: multiplications and additions, and bytes moved."""
    candidates: tuple[Choice, ...]
    """The rule's own choice first."""


@dataclass(frozen=True)
class TrialOrder:
    """Asks for a program that runs one kernel each way. The first choice is what the others are
    compared with."""

    key: str
    choices: tuple[Choice, ...]
    folder: Path
    """Gets the object files, and the program's inputs."""


@dataclass(frozen=True)
class Trial:
    objects: Objects
    inputs: tuple[TensorSpec, ...]
    """Their values are in the folder, as `input0.npy` and so on."""
    output: TensorSpec
    """How far each choice after the first is from it: squares of the difference, summed up, over
    those of the first's numbers."""
    tried: tuple[Choice, ...]
    """Without those that give the same code as one before, or that the rule can't do."""

    def kernel_of(self, place: int) -> str:
        """The name under which a profile knows the choice at that place."""
        return trial_kernel(place)


def trial_kernel(place: int) -> str:
    return f"edgekit_trial_{place}"
