"""The request of a build, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.aot.memory_map import MemoryMap
from edgekit.aot.packages.formats import CodeFormat
from edgekit.aot.ways import Way
from edgekit.backends.plan import OffloadPlan
from edgekit.base.events import StageEnded
from edgekit.base.report import Report
from edgekit.base.wording import duration
from edgekit.bundle.folder import Bundle
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.models.model import ModelSource
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain


@dataclass(frozen=True)
class BuildRequest:
    """Everything that decides the result of a build."""

    source: ModelSource
    board: Board
    toolchain: Toolchain
    seed: int = 0
    """The seed of the reference inputs."""
    verified: bool = True
    """Whether an oracle computes expected outputs."""
    offload: OffloadPlan = field(default_factory=OffloadPlan)
    prefix: str | None = None
    """The prefix of a model's functions in C; None takes the model's name."""
    code_format: CodeFormat | None = None
    """The package format of a model in C; None is plain C, like "c"."""
    choices: Choices = NO_CHOICES
    """Choices that were measured to be faster than the schedules' own."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """Ways that were measured to be faster, for steps of a model in C."""
    store: str | None = None
    """The URL of the store for measurements; None is the user's own. It decides no bytes."""


@dataclass(frozen=True)
class BuildResult(Report):
    bundle: Bundle
    from_cache: bool
    seconds: float
    archive: Path | None
    weight_bytes: int
    """Bytes of weights in the library. A start maps them and does not copy them."""
    memory_map: MemoryMap | None = None
    """The memory map of a model in C, if requested."""
    stages: tuple[StageEnded, ...] = ()
    """The stages of the build with their seconds; some run at the same time as others."""

    def headline(self) -> str:
        manifest = self.bundle.manifest
        how = "from the cache" if self.from_cache else f"in {duration(self.seconds)}"
        return f"{manifest.model.name} for {manifest.board.name}, {how}: {self.bundle.path}"
