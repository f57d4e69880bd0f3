"""What a board gets from a build: the interface of a product.

`products.product_of` chooses a board's product once. Everything that differs between a library of
machine code and a program in C is a method or an attribute of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.base.shapes import shape_text
from edgekit.profiles.offload import ProjectOffload

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.aot.memory_map import MemoryMap
    from edgekit.backends.plan import OffloadPlan
    from edgekit.base.events import Events
    from edgekit.building.expectation import Expectation
    from edgekit.building.request import BuildRequest
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import FileEntry, Kernel, Manifest, Region
    from edgekit.bundle.manifest_bare_metal import BareMetal
    from edgekit.bundle.manifest_runners import RunnerEntry
    from edgekit.bundle.manifest_steps import Arena, LibraryStep
    from edgekit.cross.toolchain import Compiler
    from edgekit.models.model import Model, ModelSource
    from edgekit.profiles.board import Board

Words = list[tuple[str, str]]
"""Names and values as a command prints them, one pair a line."""


@dataclass(frozen=True)
class Making:
    """A build under way: the request, the tools and the folders."""

    product: Product
    request: BuildRequest
    compiler: Compiler
    folder: Path
    """The folder in which the bundle is made."""
    scratch: Path
    """The folder for intermediate files."""
    events: Events


@dataclass(frozen=True)
class Contents:
    """The files of a finished bundle, and what its manifest says of them."""

    files: tuple[FileEntry, ...]
    expectation: Expectation
    """The expectation without the vectors that this product can't keep."""
    regions: tuple[Region, ...] = ()
    runners: tuple[RunnerEntry, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    steps: tuple[LibraryStep, ...] = ()
    arena: Arena | None = None
    bare_metal: BareMetal | None = None


class Compiled(ABC):
    """The files that the board's compiler and linker still need. It passes between processes."""

    @abstractmethod
    def finish(self, making: Making, expectation: Expectation) -> Contents:
        """Compile and link with the board's toolchain, and fill the bundle's folder."""


@dataclass(frozen=True)
class CompileJob(ABC):
    """The part of a build that needs TVM. It passes between processes."""

    source: ModelSource
    scratch: Path
    """The folder for the files of the result."""
    dump_ir: Path | None

    @abstractmethod
    def compile(self, model: Model, events: Events) -> Compiled:
        """Compile the imported model."""


@dataclass(frozen=True)
class OffloadWishes:
    """What a caller and a project say about offloading."""

    project: ProjectOffload = field(default_factory=ProjectOffload)
    asked: tuple[str, ...] | None = None
    """The backends that the caller names; None leaves it to the project and the board."""
    library_paths: Mapping[str, Path] = field(default_factory=dict)
    """The project's own copies of libraries, by the backend's name."""
    store: str | None = None
    """The URL of the store whose measurements count; None is the user's own."""
    twin: bool = False
    """Whether measurements on twins count."""


@dataclass(frozen=True)
class Need:
    """Python packages that the host needs for one product only."""

    name: str
    purpose: str
    expected: str
    fix: str
    find: Callable[[], str]
    """Return what is installed; empty if something is missing."""


class Product(ABC):
    """What a board gets."""

    in_words: str
    """The noun for a bundle's content, with its article."""
    own_option: str
    """The name of what runs a model without a backend."""
    tuner: Literal["kernels", "steps"]
    """The search that makes it faster."""
    tuning_pays: bool = False
    """Whether a search is an option to advise before it has run."""
    needs_outputs: bool = False
    """Whether it holds a test of its own, which needs expected outputs."""
    probe_flags: tuple[str, ...]
    """The flags by which the board's compiler makes a whole file, as a build does."""
    needs: tuple[Need, ...] = ()
    packages: tuple[str, ...] = ()
    """Python packages whose versions decide its bytes, besides those of all products."""
    nan_obstacle: str = ""
    """The reason why it may lose NaN, whatever the model is; empty if there is none."""
    fixed_sizes: str = ""
    """What the board does that needs fixed sizes; empty if a dimension may vary."""
    int8_reason: str = ""
    """The reason to quantize a model for it; empty if there is no special one."""

    def check_ranges(self, source: ModelSource, board: Board) -> None:
        """Raise UsageError for a range of sizes where every size is fixed."""
        if not source.ranges or not self.fixed_sizes:
            return
        name, shape = next(iter(source.ranges.items()))
        fixed = shape_text(source.shapes[name])
        raise UsageError(
            f"{option('shape', f'{name}={shape_text(shape)}')} gives a range, and {board.name} "
            f"{self.fixed_sizes}",
            hint=f"give one size, such as {option('shape', f'{name}={fixed}')}; ranges are for "
            "the CPUs of Linux boards",
        )

    def check(self, request: BuildRequest, *, with_memory_map: bool) -> None:
        """Raise UsageError for options of a request that are for another product."""
        options = (
            (with_memory_map, f"{option('memory-map')} shows a model in C"),
            (
                request.code_format is not None,
                f"{option('format')} says how a model in C is packed",
            ),
            (request.prefix is not None, f"{option('prefix')} names a model's functions in C"),
        )
        for is_given, words in options:
            if is_given:
                raise UsageError(
                    f"{words}, and {request.board.name} gets {self.in_words}",
                    hint="leave it out, or choose a bare-metal board; edgekit boards lists them",
                )

    @abstractmethod
    def plan(self, board: Board, wishes: OffloadWishes) -> OffloadPlan:
        """Plan which backends run parts of a model."""

    @abstractmethod
    def with_measured(self, request: BuildRequest, events: Events, *, twin: bool) -> BuildRequest:
        """Return the request with what earlier searches measured to be faster."""

    @abstractmethod
    def offload_identity(self, request: BuildRequest) -> list[object]:
        """Return what identifies the plan's backends, for a build's key."""

    def board_identity(self, board: Board) -> list[object]:
        """Return what else of the board decides the bytes, for a build's key."""
        return []

    @abstractmethod
    def job(self, request: BuildRequest, scratch: Path, dump_ir: Path | None) -> CompileJob: ...

    def run_time_libraries(self, board: Board, events: Events) -> tuple[Path, ...]:
        """Return the libraries that a model loads from its own folder, besides the backends'."""
        return ()

    def remark(self, request: BuildRequest, manifest: Manifest) -> str:
        """Return a warning about a finished bundle; empty if there is none."""
        return ""

    def weight_bytes(self, bundle: Bundle) -> int:
        """Return the bytes of weights that a start maps and does not copy."""
        return 0

    def memory_map(self, bundle: Bundle, board: Board) -> MemoryMap | None:
        """Return the memory map; None if the board has an operating system."""
        return None

    def memory_needs(self, model: Model, board: Board) -> tuple[int, int] | None:
        """Return the bytes of activations and weights; None if only an estimate can be given."""
        return None

    @abstractmethod
    def size_in_words(self, manifest: Manifest, weight_bytes: int) -> Words:
        """Describe how large a finished bundle's content is."""

    @abstractmethod
    def content_in_words(self, manifest: Manifest) -> Words:
        """Describe what runs the model."""
