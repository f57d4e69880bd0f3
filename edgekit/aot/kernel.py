"""C for one step, and the interface of the generators that offer it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from edgekit.aot.program import Program, Step
from edgekit.profiles.cpu import Cpu

if TYPE_CHECKING:
    from edgekit.base.arrays import Array


@dataclass(frozen=True, eq=False)
class Constant:
    """Read-only data: `static const` in the file of weights, aligned for its reader."""

    name: str
    """A C identifier, unique in its step; the writer puts the step's name before it."""
    array: Array
    alignment: int = 4


@dataclass(frozen=True)
class Library:
    """A third party's files that kernels need, as written under lib/NAME."""

    name: str
    version: str
    files: Mapping[str, str]
    """Text by path: sources and headers."""
    includes: tuple[str, ...]
    """Include folders inside the library."""
    license_name: str
    license_text: str


@dataclass(frozen=True, eq=False)
class Kernel:
    """One step in C.

    `source` defines `static void NAME(inputs…, outputs…[, void *scratch])`, where NAME is the
    step's name, inputs are `const T *restrict`, outputs `T *restrict`; restrict is left out where
    they may be one. It reads its constants under the names of `Constant`, prefixed by NAME and an
    underscore. Helpers that several kernels share come in `helpers`, each defined once a file.
    """

    maker: str
    """The generator's name in reports: edgekit, edgekit dsp, edgekit mve, tvm, or a library's."""
    source: str
    constants: tuple[Constant, ...] = ()
    helpers: tuple[str, ...] = ()
    """Whole C definitions, the same text in every kernel that needs them."""
    headers: tuple[str, ...] = ()
    """Headers beyond <stdint.h> and <string.h>, in angle brackets or quotes."""
    scratch: int = 0
    """Bytes of the arena in use while it runs, aligned to 16."""
    checks: tuple[str, ...] = ()
    """C expressions that must hold when the firmware starts, such as a library's scratch size."""
    in_place: tuple[tuple[int, int], ...] = ()
    """Pairs of input and output that may be the same memory."""
    tells: bool = False
    """Whether it returns an int status: 0, or an error for the step's caller."""
    library_sources: tuple[str, ...] = ()
    """Sources of its generator's library: paths inside that library's folder."""
    instructions: int | None = None
    """An estimate of the cost of a run on the CPU it was written for; None if unknown."""
    note: str = ""
    """The variant and its reason: one line for the report."""


@dataclass(frozen=True)
class Declined:
    """A generator's refusal, with the reason."""

    reason: str


NO_SUCH_WAY = Declined("it has no such way of making it")


class Generator(Protocol):
    """Offers kernels. Generators are asked in order; the cheapest offer is taken."""

    @property
    def name(self) -> str: ...

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        """Return the kernel, made in the generator's own way or in one of `ways`."""
        ...

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        """Return the other ways to make a step that it offers a kernel for: worth measuring, not
        worth offering unmeasured."""
        ...


@runtime_checkable
class UsesLibrary(Protocol):
    """The addition to `Generator` for those whose kernels call a third party's library."""

    def libraries(self, kernels: Sequence[Kernel]) -> tuple[Library, ...]:
        """Return the files that these kernels need; nothing if none calls the library."""
        ...


@runtime_checkable
class TakesRegions(Protocol):
    """The addition to `Generator` for accelerators that run several steps in one call."""

    def with_regions(self, program: Program) -> Program:
        """Return the program with the steps that the accelerator runs as `NpuRegion` operators."""
        ...


@dataclass(frozen=True)
class AbsentGenerator:
    """The stand-in for a library that was requested but not found."""

    name: str
    reason: str

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Declined:
        del step, cpu, way
        return Declined(self.reason)

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        del step, cpu
        return ()


APART = """\
/* Compilers that inline several of these into one function run out of registers. */
#define EK_APART __attribute__((noinline))
"""


def shared(kind: str, signature: str, lines: Sequence[str]) -> tuple[str, str]:
    """Return the name and text of a function that is named after its text: equal layers share one.

    @NAME@ in the signature becomes that name.
    """
    text = signature + "{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    name = f"ek_{kind}_{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    return name, text.replace("@NAME@", name)
