"""The time of an inference by kernel, as an agent or a local worker reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_INFERENCES = 1_000_000
_MOST_KERNELS = 20_000
_MOST_CALLS = 1 << 40
_MOST_NANOSECONDS = 1 << 62
_LONGEST_NAME = 200


@dataclass(frozen=True)
class KernelTime:
    name: str
    calls: int
    """Number of calls in all profiled inferences."""
    nanoseconds: int
    """Time in the kernel in one inference, all calls together: the median of the inferences."""


@dataclass(frozen=True)
class KernelTimes:
    inferences: int
    kernels: tuple[KernelTime, ...]


def parse_kernel_times(said: Mapping[str, Any]) -> KernelTimes | None:
    """Read a measurement's answer; None if nothing was profiled. ValueError, TypeError or KeyError
    if it is invalid."""
    if "kernels" not in said:
        return None
    listed = said["kernels"]
    if not isinstance(listed, list) or len(listed) > _MOST_KERNELS:
        raise ValueError("no list of kernels")
    return KernelTimes(
        inferences=_number(said["profiled"], _MOST_INFERENCES, least=1),
        kernels=tuple(
            KernelTime(
                name=_name(kernel["name"]),
                calls=_number(kernel["calls"], _MOST_CALLS, least=1),
                nanoseconds=_number(kernel["nanoseconds"], _MOST_NANOSECONDS),
            )
            for kernel in listed
        ),
    )


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a kernel without a name")
    return "".join(c if c.isprintable() else "?" for c in value[:_LONGEST_NAME])


def _number(value: object, most: int, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("no sensible number")
    return value
