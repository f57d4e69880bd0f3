"""Messages between a search and the processes that propose, compile and measure for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.backends.plan import OffloadPlan
from edgekit.base.measurer import Measurer
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import Choice
from edgekit.cross.link import Linker
from edgekit.models.model import ModelSource
from edgekit.profiles.cpu import Target
from edgekit.rpc.protocol import TrackerAddress

ErrorKind = Literal["compile", "run", "numbers", "timeout", "device", "filtered"]
"""The reason why a candidate has no time. Filtered ones were never sent to a device."""

OWN, FAR, SPOIL = "edgekit_own", "edgekit_far", "edgekit_spoil"
"""Symbols in a batch's library: the rule's own way, the error between two results, and a kernel
that overwrites a result with a wrong one."""


@dataclass(frozen=True)
class Subject:
    """A kernel of a search, self-contained so that it compiles without its model."""

    key: str
    words: str
    function: str
    """TVM's JSON of the unscheduled kernel; empty if `problem` describes it."""
    problem: str
    """The description of a product, whose weights are packed for each choice."""
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec


@dataclass(frozen=True)
class Task:
    """One kernel and its candidates."""

    subject: Subject
    calls: int
    """The number of calls in one inference."""
    work: int
    """Operations and elements touched, of one call."""
    operations: int
    """Floating-point operations of one call."""
    own: Choice
    candidates: tuple[Choice, ...]
    """Parameters of the rule, likely ones first, without the rule's own."""
    traced: bool
    """Whether to search for MetaSchedule's schedules."""
    problem_key: str | None = None
    """The key of the task for this product's parameters, if this task is for its traces."""

    @property
    def key(self) -> str:
        return self.subject.key


@dataclass(frozen=True)
class FindTasks:
    """A request for the kernels of a model, which the proposer keeps."""

    source: ModelSource
    target: Target
    offload: OffloadPlan
    seed: int
    yields: bool
    """Whether to run at the lowest CPU priority."""


@dataclass(frozen=True)
class Propose:
    """A request for schedules that were not proposed before."""

    key: str
    count: int


@dataclass(frozen=True)
class Learn:
    """The times of measured schedules."""

    key: str
    measured: tuple[tuple[str, float], ...]
    """Traces and their microseconds."""


@dataclass(frozen=True)
class BuilderSetup:
    target: Target
    linker: Linker
    yields: bool = False
    """Whether to run at the lowest CPU priority, because this host measures at the same time."""


@dataclass(frozen=True)
class BatchOrder:
    """A request for one library with a kernel's own way and others."""

    subject: Subject
    choices: tuple[Choice, ...]
    folder: Path
    """The empty folder for the library and its objects."""
    inputs: Path
    """The folder of the kernel's inputs, kept between batches."""


@dataclass(frozen=True)
class BuiltFunction:
    place: int
    """The index in the order's choices; -1 for the rule's own."""
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
    """The folder with each input as NAME.npy."""
    output: TensorSpec
    functions: tuple[BuiltFunction, ...]
    failures: tuple[BuildFailure, ...]


@dataclass(frozen=True)
class RunnerSetup:
    tracker: TrackerAddress
    key: str
    priority: int
    session_seconds: float
    """The longest time that a device is held before others get their turn."""
    wait_seconds: float


@dataclass(frozen=True)
class Taken:
    """The message that the runner has the device behind this port."""

    port: int
    offer: str
    """The tracker's offer that it came with."""


@dataclass(frozen=True)
class Begun:
    """The message that a candidate is measured from now on; its time may come much later."""

    place: int


@dataclass(frozen=True)
class Timed:
    """The time of a candidate of a batch, or of the rule's own with place -1."""

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
    """The message that the session ended during a batch, perhaps because of the candidate."""

    reason: str
    began: bool
    """Whether there was a session at all."""


@dataclass(frozen=True)
class LocalPlan:
    """This host as a device that serves TVM's RPC."""

    agent: Path
    key: str
    tracker: TrackerAddress
    workspace: Path
    threads: int | None = None


@dataclass(frozen=True)
class Up:
    """The message that a device serves behind this port."""

    port: int
    measured_by: Measurer


@dataclass(frozen=True)
class Trouble:
    """A failure of a serving device, which is restarted."""

    text: str
