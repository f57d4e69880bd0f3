"""Who offers kernels, in the order in which they are asked: the one list of all generators."""

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
"""Other people's kernels that somebody may ask for by name, with --offload."""


def generators(offload: Sequence[str] = (), cmsis_nn: Path | None = None) -> tuple[Generator, ...]:
    """`offload` names libraries that may be used beside edgekit's own kernels, and `cmsis_nn` is
    where the project says that one of them is."""
    libraries = (_cmsis_nn(cmsis_nn),) if "cmsis-nn" in offload else ()
    return (MveGenerator(), DspGenerator(), *libraries, PortableGenerator(), LoopGenerator())


def cmsis_nn_place(options: Mapping[str, Mapping[str, object]]) -> Path | None:
    """What a plan says of where CMSIS-NN is."""
    place = options.get("cmsis-nn", {}).get("path")
    return None if place is None else Path(str(place))


def _cmsis_nn(place: Path | None) -> Generator:
    try:
        return CmsisNnGenerator(find_cmsis_nn(place))
    except MissingToolError as error:
        return NoCmsisNn(error.message)


def libraries_of(offers: Sequence[Generator], kernels: Sequence[Kernel]) -> tuple[Library, ...]:
    """The files of third parties that these kernels need."""
    return tuple(
        library
        for generator in offers
        if isinstance(generator, CmsisNnGenerator)
        for library in library_of(kernels, generator.library)
    )


def library_identity(offload: Sequence[str], cmsis_nn: Path | None) -> list[object]:
    """What decides the C that libraries are asked for: it is part of a build's key."""
    if "cmsis-nn" not in offload:
        return [*offload]
    try:
        found = find_cmsis_nn(cmsis_nn)
    except MissingToolError:
        return [*offload]
    return [*offload, found.version, found.identity]


def portable_generators() -> tuple[Generator, ...]:
    """Whose C every machine runs."""
    return (PortableGenerator(), LoopGenerator())


def is_portable(kernel: Kernel) -> bool:
    return kernel.maker in {generator.name for generator in portable_generators()}
