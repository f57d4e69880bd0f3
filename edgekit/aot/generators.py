"""Who offers kernels, in the order in which they are asked: the one list of all generators."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.aot.kernel import Generator, Kernel
from edgekit.aot.kernels_dsp.generator import DspGenerator
from edgekit.aot.kernels_mve.generator import MveGenerator
from edgekit.aot.kernels_portable.generator import PortableGenerator
from edgekit.aot.loops.generator import LoopGenerator

LIBRARIES: tuple[str, ...] = ()
"""Other people's kernels that somebody may ask for by name, with --offload."""


def generators(offload: Sequence[str] = ()) -> tuple[Generator, ...]:
    """`offload` names libraries that may be used beside edgekit's own kernels."""
    del offload
    return (MveGenerator(), DspGenerator(), PortableGenerator(), LoopGenerator())


def library_identity(offload: Sequence[str]) -> list[object]:
    """What decides the C that libraries are asked for: it is part of a build's key."""
    return [*offload]


def portable_generators() -> tuple[Generator, ...]:
    """Whose C every machine runs."""
    return (PortableGenerator(), LoopGenerator())


def is_portable(kernel: Kernel) -> bool:
    return kernel.maker in {generator.name for generator in portable_generators()}
