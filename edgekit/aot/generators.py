"""The list of all kernel generators, in the order in which they are asked for offers."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.aot.kernel import Generator, Kernel
from edgekit.aot.kernels_dsp.generator import DspGenerator
from edgekit.aot.kernels_mve.generator import MveGenerator
from edgekit.aot.kernels_portable.generator import PortableGenerator
from edgekit.aot.loops.generator import LoopGenerator


def generators(libraries: Sequence[Generator] = ()) -> tuple[Generator, ...]:
    """Return edgekit's own generators, and those of third-party `libraries`."""
    return (MveGenerator(), DspGenerator(), *libraries, *portable_generators())


def portable_generators() -> tuple[Generator, ...]:
    """Return the generators whose C every machine runs."""
    return (PortableGenerator(), LoopGenerator())


def is_portable(kernel: Kernel) -> bool:
    return kernel.maker in {generator.name for generator in portable_generators()}
