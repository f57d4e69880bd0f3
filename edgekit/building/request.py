"""What a build is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.aot.packages.formats import CodeFormat
from edgekit.aot.ways import Way
from edgekit.backends.plan import OffloadPlan
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.models.model import ModelSource
from edgekit.models.preprocess import Preprocess
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain


@dataclass(frozen=True)
class BuildRequest:
    """Everything that decides what a build gives."""

    source: ModelSource
    board: Board
    toolchain: Toolchain
    preprocess: Mapping[str, Preprocess] = field(default_factory=dict)
    """How images become inputs, by input name; goes into the manifest."""
    seed: int = 0
    """Of the reference inputs."""
    verified: bool = True
    """Whether an oracle says what comes out of the model."""
    offload: OffloadPlan = field(default_factory=OffloadPlan)
    prefix: str | None = None
    """What the names of a model's functions in C begin with; None takes the model's name."""
    code_format: CodeFormat | None = None
    """What a model in C is packed as beside its C; None is plain C, like "c"."""
    choices: Choices = NO_CHOICES
    """What was measured to be better than the schedules' own choices."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """The same for steps of a model in C."""
