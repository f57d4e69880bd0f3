"""What passes between a search and the processes that propose, compile and measure for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.backends.plan import OffloadPlan
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import Choice
from edgekit.cross.link import Linker
from edgekit.models.model import ModelSource
from edgekit.profiles.cpu import Target
from edgekit.rpc.protocol import TrackerAddress

ErrorKind = Literal["compile", "run", "numbers", "timeout", "device", "filtered"]
"""Why a candidate has no time. What is filtered was never sent to a device."""

OWN, FAR, SPOIL = "edgekit_own", "edgekit_far", "edgekit_spoil"
"""In a batch's library: the rule's own way, how far two results are apart, and what leaves a result
that nobody could mistake for one."""


@dataclass(frozen=True)
class Subject:
    """A kernel that is searched for, complete: it is compiled far from its model."""

    key: str
    words: str
    function: str
    """TVM's JSON of it without a schedule; empty where `problem` says what is computed."""
    problem: str
    """Of a product, whose weights are packed as each choice wants them."""
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec


@dataclass(frozen=True)
class Task:
    """One kernel, and what there is to try."""

    subject: Subject
    calls: int
    """In one inference."""
    work: int
    """Of one call: multiplications and additions, and elements touched."""
    operations: int
    """Of one call, additions and multiplications counted apart: what FLOP/s are of."""
    own: Choice
    candidates: tuple[Choice, ...]
    """Parameters of its rule, likely ones first, without the rule's own."""
    traced: bool
    """Whether schedules of MetaSchedule's are worth looking for."""
    problem_key: str | None = None
    """Of the task about this product's parameters, where this one is about traces of it."""

    @property
    def key(self) -> str:
        return self.subject.key


@dataclass(frozen=True)
class FindTasks:
    """Asks the proposer for the kernels of a model; it keeps them."""

    source: ModelSource
    target: Target
    offload: OffloadPlan
    seed: int
    yields: bool
    """As builders do."""


@dataclass(frozen=True)
class Propose:
    """Asks for schedules that were not proposed before."""

    key: str
    count: int


@dataclass(frozen=True)
class Learn:
    """Tells how long schedules took."""

    key: str
    measured: tuple[tuple[str, float], ...]
    """Traces, and microseconds."""


@dataclass(frozen=True)
class BuilderSetup:
    target: Target
    linker: Linker
    yields: bool = False
    """To whatever else this machine does: it measures at the same time."""
    pause_us: int = 0
    """Added to every run, without using the CPU: stands for a device that takes its time."""


@dataclass(frozen=True)
class BatchOrder:
    """Asks for one library with a kernel's own way and others."""

    subject: Subject
    choices: tuple[Choice, ...]
    folder: Path
    """Empty; gets the library and its objects."""
    inputs: Path
    """Of the kernel, kept between batches."""


@dataclass(frozen=True)
class BuiltFunction:
    place: int
    """Among the order's choices; -1 for the rule's own."""
    symbol: str
    arguments: tuple[str, ...]
    """Names of inputs."""


@dataclass(frozen=True)
class BuildFailure:
    place: int
    kind: ErrorKind
    reason: str


@dataclass(frozen=True)
class BuiltBatch:
    library: Path
    inputs: Path
    """The folder where each input lies, as NAME.npy."""
    output: TensorSpec
    functions: tuple[BuiltFunction, ...]
    failures: tuple[BuildFailure, ...]


@dataclass(frozen=True)
class RunnerSetup:
    tracker: TrackerAddress
    key: str
    priority: int
    session_seconds: float
    """For so long a device is held at most before others get their turn."""
    wait_seconds: float


@dataclass(frozen=True)
class Taken:
    """The runner has a device now, behind this port."""

    port: int
    offer: str
    """Which of the tracker's offers it came with."""


@dataclass(frozen=True)
class Timed:
    """One candidate of a batch, or the rule's own with place -1."""

    place: int
    microseconds: float | None
    error: ErrorKind | None = None
    reason: str = ""


@dataclass(frozen=True)
class BatchDone:
    own_first: float
    """Microseconds of the rule's own before the others were measured, and after."""
    own_last: float


@dataclass(frozen=True)
class SessionEnded:
    """The session is over before the batch was: whatever was under way may have ended it."""

    reason: str
    began: bool
    """Whether there was a session at all."""


@dataclass(frozen=True)
class LocalPlan:
    """This machine as a device that serves TVM's RPC."""

    agent: Path
    key: str
    tracker: TrackerAddress
    workspace: Path
    threads: int | None = None


@dataclass(frozen=True)
class Up:
    """A device serves now, behind this port."""

    port: int


@dataclass(frozen=True)
class Trouble:
    """With a device that serves; it is brought back."""

    text: str
