"""Who offers kernels, in the order in which they are asked: the one list of all generators."""

from __future__ import annotations

from edgekit.aot.kernel import Generator
from edgekit.aot.loops.generator import LoopGenerator


def generators() -> tuple[Generator, ...]:
    return (LoopGenerator(),)
