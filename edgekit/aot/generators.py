"""The list of all kernel generators, in the order in which they are asked for offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.aot.cmsis_nn.generator import CmsisNnGenerator, NoCmsisNn
from edgekit.aot.cmsis_nn.library import library_of
from edgekit.aot.kernel import Generator, Kernel
from edgekit.aot.kernels_dsp.generator import DspGenerator
from edgekit.aot.kernels_mve.generator import MveGenerator
from edgekit.aot.kernels_portable.generator import PortableGenerator
from edgekit.aot.loops.generator import LoopGenerator
from edgekit.aot.tree import Library
from edgekit.base.errors import MissingToolError
from edgekit.cross.cmsis_nn import find_cmsis_nn

LIBRARIES: tuple[str, ...] = ("cmsis-nn",)
"""Third-party kernel libraries that a user can request by name, with --offload."""


def generators(offload: Sequence[str] = (), cmsis_nn: Path | None = None) -> tuple[Generator, ...]:
    """Return the generators; `offload` names the libraries that may be used besides edgekit's own
    kernels, and `cmsis_nn` is the project's path of one of them."""
    libraries = (_cmsis_nn(cmsis_nn),) if "cmsis-nn" in offload else ()
    return (MveGenerator(), DspGenerator(), *libraries, PortableGenerator(), LoopGenerator())


def cmsis_nn_place(options: Mapping[str, Mapping[str, object]]) -> Path | None:
    """Return the path of CMSIS-NN in a plan's options."""
    place = options.get("cmsis-nn", {}).get("path")
    return None if place is None else Path(str(place))


def _cmsis_nn(place: Path | None) -> Generator:
    try:
        return CmsisNnGenerator(find_cmsis_nn(place))
    except MissingToolError as error:
        return NoCmsisNn(error.message)


def libraries_of(offers: Sequence[Generator], kernels: Sequence[Kernel]) -> tuple[Library, ...]:
    """Return the third-party files that these kernels need."""
    return tuple(
        library
        for generator in offers
        if isinstance(generator, CmsisNnGenerator)
        for library in library_of(kernels, generator.library)
    )


def library_identity(offload: Sequence[str], cmsis_nn: Path | None) -> list[object]:
    """Return what decides the C of requested libraries: it is part of a build's key."""
    if "cmsis-nn" not in offload:
        return [*offload]
    try:
        found = find_cmsis_nn(cmsis_nn)
    except MissingToolError:
        return [*offload]
    return [*offload, found.version, found.identity]


def portable_generators() -> tuple[Generator, ...]:
    """Return the generators whose C every machine runs."""
    return (PortableGenerator(), LoopGenerator())


def is_portable(kernel: Kernel) -> bool:
    return kernel.maker in {generator.name for generator in portable_generators()}
