"""The time of an inference by kernel, as an agent or a local worker reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgekit.base.decode import Convert, Range

_LONGEST_NAME = 200


def _shown(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError
    return "".join(c if c.isprintable() else "?" for c in name[:_LONGEST_NAME])


@dataclass(frozen=True)
class KernelTime:
    name: Annotated[str, Convert("the name of a kernel", _shown)]
    calls: Annotated[int, Range(1, 1 << 40)]
    """Number of calls in all profiled inferences."""
    nanoseconds: Annotated[int, Range(0, 1 << 62)]
    """Time in the kernel in one inference, all calls together: the median of the inferences."""


@dataclass(frozen=True)
class KernelTimes:
    inferences: int
    kernels: tuple[KernelTime, ...]
