"""Messages between a quick search and the process that compiles for it."""

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
    """A request for the kernels of a model, which the process keeps."""

    source: ModelSource
    target: Target
    offload: OffloadPlan


@dataclass(frozen=True)
class Kernel:
    """A kernel with choices."""

    key: str
    words: str
    work: int
    """Operations and bytes moved, of all calls in one inference."""
    candidates: tuple[Choice, ...]
    """The rule's own choice first."""


@dataclass(frozen=True)
class TrialOrder:
    """A request for a program that runs one kernel with each choice and compares with the first."""

    key: str
    choices: tuple[Choice, ...]
    folder: Path
    """The folder for the object files and the program's inputs."""


@dataclass(frozen=True)
class Trial:
    objects: Objects
    inputs: tuple[TensorSpec, ...]
    """The inputs, whose values are in the folder as `input0.npy` and so on."""
    output: TensorSpec
    """The relative error of each choice against the first: sums of squared differences over sums of
    squares."""
    tried: tuple[Choice, ...]
    """The choices without duplicates of the code and without those that the rule refuses."""

    def kernel_of(self, place: int) -> str:
        """Return the name of the choice at a place in a profile."""
        return trial_kernel(place)


def trial_kernel(place: int) -> str:
    return f"edgekit_trial_{place}"
